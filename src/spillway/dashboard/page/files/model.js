// What the page knows: the messages of the feed, added up. No document, no network.
//
// A message with `whole` replaces everything, except after a restart of the same query: then the page
// keeps what it has and marks the gap, because the new start knows nothing of the minutes before.
"use strict";

spillway.model = (() => {
  const MOST_POINTS = 900, MOST_HAPPENINGS = 800, MOST_CELLS = 2e6, MOST_FRAMES = 240;
  const CATEGORIES = {
    spilled: "spill", "force-spilled": "spill", "cleaned-up": "cleanup", reloaded: "cleanup",
    scaled: "scale", reshaped: "plan", started: "start", stopped: "start", asked: "asked",
    "sending-failed": "failure", "move-rolled-back": "failure", "track-given-up": "failure",
  };
  const category = (kind) => CATEGORIES[kind] || "move";
  // The kinds that end a move, or show it on the charts.
  // Messages leave out zeros and empty lists.
  const POINT = { round: 0, seconds: 0, rows_in: [], rows_late: [], rows_null: [], rows_out: 0, rows_cleaned: 0, phases_s: [], reached_s: [], busy: [], waiting_rows: 0, pending_groups: 0 };
  const HAPPENING = { groups: 0, some: [], bytes: 0, seconds: 0, rows_out: 0, message: "", shapes: [] };
  const SLOTS = { waiting_rows: [], shapes: [], moves: [], scaling_to: null };
  const ENDS = ["groups-reactivated", "groups-deleted", "move-rolled-back"];

  function create() {
    return {
      about: null, status: "", told: "", now: null, heard: null, points: [], happenings: [],
      slots: new Map(), heats: new Map(), frames: new Map(), gaps: [],
    };
  }

  function apply(model, news, heard) {
    if (news.whole) replace(model, news);
    if (news.about) model.about = news.about;
    if (news.status) { model.status = news.status; model.told = news.told || ""; }
    if (news.now_s !== undefined && news.now_s !== null) { model.now = news.now_s; model.heard = heard; }
    push(model.points, news.points, MOST_POINTS, POINT);
    push(model.happenings, news.happenings, MOST_HAPPENINGS, HAPPENING);
    for (const one of news.slots || []) model.slots.set(one.stage, { ...SLOTS, ...one });
    for (const one of news.heats || []) addHeat(model, one);
    return model;
  }

  function replace(model, news) {
    const before = model.about, after = news.about;
    const restarted = before && after && before.run !== after.run
      && before.query && before.query === after.query && before.clock === after.clock;
    const points = model.points, happenings = model.happenings, gaps = model.gaps;
    const frames = model.frames;
    Object.assign(model, create());
    if (before && after && before.run === after.run) { model.frames = frames; model.gaps = gaps; }
    if (!restarted) return;
    const first = (news.points || [])[0];
    const until = first ? first.at_s - (first.seconds || 0) : news.now_s;
    model.points = points.filter((one) => one.at_s <= until);
    model.happenings = happenings.filter((one) => one.at_s <= until);
    const last = model.points[model.points.length - 1];
    model.gaps = [...gaps.slice(-20), { from: last ? last.at_s : until, to: until }];
  }

  function push(list, more, most, defaults) {
    if (!more) return;
    list.push(...more.map((one) => ({ ...defaults, ...one })));
    if (list.length > most) list.splice(0, list.length - most);
  }

  function addHeat(model, heat) {
    const packed = {
      stage: heat.stage, batch: heat.batch, at: heat.at_s, slot: Int32Array.from(heat.slot),
      memory: Float64Array.from(heat.memory_bytes), disk: Float64Array.from(heat.disk_bytes),
      load: Float32Array.from(heat.load), productivity: Float32Array.from(heat.productivity),
    };
    model.heats.set(heat.stage, packed);
    const frames = model.frames.get(heat.stage) || [];
    frames.push(packed);
    const most = Math.min(MOST_FRAMES, Math.max(4, Math.floor(MOST_CELLS / packed.slot.length)));
    if (frames.length > most) frames.splice(0, frames.length - most);
    model.frames.set(heat.stage, frames);
  }

  // The producer's clock now: it runs on between two messages while the query runs.
  function nowOf(model, heard) {
    if (model.now === null) return null;
    const live = model.about && model.about.clock === "wall" && model.status === "running";
    return live ? model.now + (heard - model.heard) : model.now;
  }

  const pointsOf = (model, stage) => model.points.filter((one) => one.stage === stage);
  const sum = (values) => (values || []).reduce((total, one) => total + (one || 0), 0);

  // Rows a second over the last points: rows by the time in which they came.
  function ratesOf(points, most = 8) {
    const last = points.slice(-most);
    if (!last.length) return { in: 0, out: 0, streams: [] };
    const first = last[0], newest = last[last.length - 1];
    // The first point stands for as much time as the others do.
    const span = Math.max(last.length > 1 ? ((newest.at_s - first.at_s) * last.length) / (last.length - 1) : first.seconds, 1e-3);
    const streams = (newest.rows_in || []).map((_, at) => sum(last.map((one) => (one.rows_in || [])[at])) / span);
    return { in: sum(streams), out: sum(last.map((one) => one.rows_out)) / span, streams };
  }

  // The stream that holds the watermark: the one whose own watermark is the least.
  function holder(point) {
    const reached = (point && point.reached_s) || [];
    const known = reached.map((at, index) => ({ at, index })).filter((one) => one.at !== null);
    if (known.length < 2) return null;
    const least = known.reduce((a, b) => (b.at < a.at ? b : a));
    const most = known.reduce((a, b) => (b.at > a.at ? b : a));
    return { stream: least.index, behind: most.at - least.at };
  }

  // Lines of the timeline: the steps of one move are one line. Newest first.
  function story(model, stage) {
    const lines = [], moves = new Map();
    for (const one of model.happenings) {
      if (one.stage !== stage && category(one.kind) !== "start") continue;
      if (one.move === undefined || one.move === null) { lines.push({ of: one, at: one.at_s, steps: [] }); continue; }
      let line = moves.get(one.move);
      // A start numbers its moves on, so a number below the one before belongs to another query.
      if (!line || line.done) { line = { of: one, at: one.at_s, steps: [], done: false }; moves.set(one.move, line); lines.push(line); }
      line.steps.push(one);
      line.at = one.at_s;
      if (ENDS.includes(one.kind) || (one.kind === "groups-chosen" && !one.groups)) line.done = true;
    }
    return lines.reverse();
  }

  return { create, apply, nowOf, pointsOf, ratesOf, holder, story, category, sum, ENDS };
})();
