// Connects the model with the parts of the page.
"use strict";

(() => {
  const { make, set, say, count, rate, bytes, seconds, percent, plural, moment } = spillway.text;
  const { pointsOf, ratesOf, holder, story, sum } = spillway.model;
  const $ = (id) => document.getElementById(id);
  const model = spillway.model.create();
  const clock = () => performance.now() / 1000;
  let stage = 0, connected = true, asked = false, timed = [], pinnedGroup = null, groupPlot = null;

  const heat = spillway.heat.create($("heat"), $("tip"), $("heat-said"), (group) => {
    if (group !== undefined) pinnedGroup = group;
    later();
  });
  const charts = spillway.charts.create($("charts"), $("chart-marks"));
  const timeline = spillway.timeline.create($("timeline"));
  spillway.chapters.fill($("chapters"));
  spillway.controls.takeToken();

  function take(news) {
    connected = true;
    spillway.model.apply(model, news, clock());
    later();
  }
  function later() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    asked = false;
    const began = performance.now();
    drawHead();
    if (!model.about) return;
    stage = Math.min(stage, model.about.stages.length - 1);
    drawStages();
    drawNow();
    drawTiles();
    const drawn = heat.draw(model, stage, spillway.model.nowOf(model, clock()) || 0);
    drawLegend(drawn ? drawn.most : 0);
    drawPinned();
    drawTable();
    timeline.draw(model, stage);
    charts.draw(model, stage);
    spillway.flow.draw($("flow"), $("shapes"), model);
    spillway.controls.fill($("controls"), $("commands"), $("answer"), model.about.controls || [], model.slots.has(0) ? model.slots.get(0).memory_bytes.length : 2);
    timed = [...timed.slice(-49), performance.now() - began];
    // Tests read how long an update takes, and that one has ended.
    spillway.updates = (spillway.updates || 0) + 1;
    spillway.update_ms = timed;
    if (drawn && drawn.busy && model.status === "running" && !document.hidden) setTimeout(later, 60);
  }

  function drawHead() {
    const about = model.about;
    if (about) { say($("title"), about.title); document.title = `${about.title} · Spillway`; }
    const status = connected ? model.status || "waiting" : "lost";
    const said = { running: "running", ended: "ended", failed: "failed", lost: "no connection", waiting: "connecting" }[status];
    $("status").dataset.status = status;
    say($("status"), said);
    const points = about ? pointsOf(model, stage) : [], last = points[points.length - 1];
    say($("age"), last ? `batch ${count(last.batch)}${last.round ? `, round ${last.round}` : ""} · ${ago(last)}` : "");
  }

  function ago(last) {
    if (model.about.clock !== "wall") return `${model.about.clock} time ${moment(model.now ?? last.at_s, model.about.clock)}`;
    if (model.status !== "running") return moment(last.at_s, "wall");
    return `${seconds(Math.max(0, Math.round(spillway.model.nowOf(model, clock()) - last.at_s)))} ago`;
  }

  function drawStages() {
    const place = $("stages"), { stages } = model.about;
    place.hidden = stages.length < 2;
    if (place.hidden || place.querySelectorAll("input").length === stages.length) return;
    place.replaceChildren(make("legend", "unseen", "Stage"), ...stages.map((one, at) => {
      const input = set(make("input"), { type: "radio", name: "stage", value: at });
      input.checked = at === stage;
      input.addEventListener("change", () => { stage = at; heat.state.view = null; pinnedGroup = heat.state.pinned = heat.state.cursor = null; charts.forget(); $("timeline").replaceChildren(); later(); });
      return make("label", "", input, make("span", "", `${at + 1}. ${one.operator}`));
    }));
  }

  // One sentence for people who see the page for the first time.
  function sentence() {
    const now = spillway.model.nowOf(model, clock()), slots = model.slots.get(stage), points = pointsOf(model, stage);
    if (model.status === "failed") return { mark: "failure", text: "The query has failed.", why: model.told };
    const lines = story(model, stage), newest = lines[0];
    if (slots && (slots.moves || []).length) {
      const move = slots.moves[slots.moves.length - 1], more = slots.moves.length - 1;
      const what = move.groups ? `${plural(move.groups, "group")} (${bytes(move.bytes)})` : `about ${bytes(move.bytes)}`;
      const how = move.protocol === "ptlb" ? "Both slots process the rows of" : "moves";
      const text = move.protocol === "ptlb" ? `${how} ${what}: slot ${move.sender} hands them over to slot ${move.receiver}` : `Slot ${move.sender} ${how} ${what} to slot ${move.receiver}`;
      return { mark: "move", text: `${text}${more ? `; ${plural(more, "more move")} in progress` : ""}.`, why: move.reason };
    }
    if (newest && now !== null && now - newest.at < 10 && model.status === "running") {
      const said = spillway.timeline.summary(newest);
      return { mark: said.category, text: spillway.timeline.sentence(newest), why: said.reason || said.note };
    }
    if (slots && slots.scaling_to) return { mark: "scale", text: `The query changes from ${plural(slots.memory_bytes.length, "slot")} to ${slots.scaling_to}.`, why: "groups move to new slots and away from retiring ones" };
    if (!slots || !points.length) return { mark: "", text: model.status === "ended" ? "Nothing was recorded." : "Waiting for the first batch.", why: "" };
    const last = points[points.length - 1], busiest = (slots.busy || []).length ? Math.max(...slots.busy) : null;
    const disk = sum(slots.disk_bytes);
    const work = busiest === null ? "" : `, the busiest works ${percent(busiest)} of the time`;
    const state = `${bytes(sum(slots.memory_bytes))} of state in memory${disk ? `, ${bytes(disk)} on disk` : ", none on disk"}`;
    const ended = model.status === "ended" ? `${model.told ? `${model.told[0].toUpperCase()}${model.told.slice(1)}` : "The query has ended"}: ` : "";
    return { mark: "calm", text: `${ended}${plural(slots.memory_bytes.length, "slot")}${work}; ${state}.`,
      why: last.pending_groups ? `${plural(last.pending_groups, "group")} still miss results between memory and disk` : "nothing is being adapted" };
  }

  function drawNow() {
    const said = sentence();
    $("now-mark").setAttribute("class", `mark ${said.mark}`);
    say($("now"), said.text);
    say($("now-why"), said.why ? `Why: ${spillway.timeline.gloss(said.why)}` : "");
    if (said.mark === "calm") say($("now-why"), said.why);
  }

  function drawTiles() {
    const points = pointsOf(model, stage), last = points[points.length - 1], slots = model.slots.get(stage);
    if (!last) return;
    const rates = ratesOf(points), disk = slots ? sum(slots.disk_bytes) : last.disk_bytes, held = holder(last);
    const recent = points.slice(-20).map((one) => one.seconds).sort((a, b) => a - b), memory = slots ? sum(slots.memory_bytes) : last.memory_bytes;
    const limit = slots && slots.limit_bytes.every((one) => one) ? sum(slots.limit_bytes) : null;
    const late = sum(points.map((one) => sum(one.rows_late)));
    const streams = model.about.stages[stage].streams;
    const tiles = [
      ["Rows in", `${rate(rates.in)}/s`, plural(streams.length, "stream")],
      ["Rows out", `${rate(rates.out)}/s`, `${rate(sum(points.map((one) => one.rows_out)))} shown here`],
      ["Batch", seconds(last.seconds), `median ${seconds(recent[Math.floor(recent.length / 2)])}`],
      ["In memory", bytes(memory), limit ? `${percent(memory / limit)} of ${bytes(limit)}` : "no limit shown"],
      ["On disk", bytes(disk), last.pending_groups ? `${plural(last.pending_groups, "group")} miss results` : "no result is missing"],
      held && held.behind > 0.1 ? ["Watermark waits for", streams[held.stream], `${seconds(held.behind)} behind the first`]
        : ["Late rows", count(late), last.waiting_rows ? `${count(last.waiting_rows)} rows wait` : "no row waits"],
    ];
    const place = $("tiles");
    if (place.childElementCount !== tiles.length) place.replaceChildren(...tiles.map(() => make("div", "tile", make("dt", ""), make("dd", "", make("b", ""), make("small", "")))));
    tiles.forEach(([name, value, note], at) => {
      const [title, body] = place.children[at].children;
      say(title, name); say(body.children[0], value); say(body.children[1], note);
    });
    $("tiles").dataset.batch = last.batch;
    spillway.shown = { points, slots, rates };
  }

  function drawLegend(most) {
    const place = $("legend"), metric = heat.METRICS[heat.state.metric], theme = document.documentElement.dataset.theme;
    const key = `${heat.state.metric} ${theme}`;
    if (place.dataset.key !== key) {
      place.dataset.key = key;
      const strip = make("span", "strip", ...spillway.heat.ramp(metric.scale).filter((_, at) => at % 8 === 3).map((one) => { const part = make("i", ""); part.style.background = one; return part; }));
      place.replaceChildren("0 ", strip, make("b", ""), make("span", "hatched", ""), "on disk");
    }
    say(place.querySelector("b"), ` ${metric.show(most || 0)} ${metric.name === "bytes" ? "" : metric.name}`);
    const plan = heat.state.plan;
    if (!plan) return;
    const together = [plan.perRow > 1 ? `${plan.perRow} slots a row` : "", plan.perCell > 1 ? `${plan.perCell} groups a square` : ""].filter(Boolean).join(", ");
    say($("range"), `slots ${plan.view.from} to ${plan.view.to - 1}${together ? `; ${together}` : ""}`);
    $("zoom-in").disabled = plan.view.to - plan.view.from <= 4;
    $("zoom-out").disabled = plan.view.whole !== false && plan.view.to - plan.view.from === plan.slots;
  }

  function drawPinned() {
    const place = $("pinned"), frames = model.frames.get(stage) || [], frame = frames[frames.length - 1];
    place.hidden = pinnedGroup === null || !frame || pinnedGroup >= frame.slot.length;
    if (place.hidden) { groupPlot = null; place.replaceChildren(); return; }
    const key = `${stage} ${pinnedGroup} ${frame.batch} ${frame.at} ${document.documentElement.dataset.theme} ${place.clientWidth}`;
    if (place.dataset.key === key) return;
    place.dataset.key = key;
    const g = pinnedGroup;
    const close = set(make("button", "", "Remove pin"), { type: "button" });
    close.addEventListener("click", () => { heat.state.pinned = pinnedGroup = null; $("heat").focus(); later(); });
    const head = make("p", "head", make("strong", "", `Group ${g}, slot ${frame.slot[g]}`), close);
    const numbers = make("p", "hint", `${bytes(frame.memory[g])} in memory, ${bytes(frame.disk[g])} on disk; ${rate(frame.load[g])} rows per batch; ${rate(frame.productivity[g])} results per MB`);
    const chart = make("div", "small");
    const lines = model.happenings.filter((one) => one.stage === stage && (one.some || []).includes(g)).slice(-8).reverse();
    const list = make("ul", "", ...lines.map((one) => make("li", "", `${moment(one.at_s, model.about.clock)} ${spillway.chapters.named(one.kind)}${one.receiver === undefined ? ` in slot ${one.slot}` : `, slot ${one.slot} → ${one.receiver}: ${spillway.chapters.STEPS[one.kind] || ""}`}`)));
    place.replaceChildren(head, numbers, chart, lines.length ? list : make("p", "hint", "It has not spilled or moved in the time that is kept."));
    if (frames.length > 1) groupPlot = spillway.charts.ofGroup(chart, frames, g, model.about.clock);
  }

  const COLUMNS = [
    ["slot", (_, at) => at], ["in memory", (one, at) => bytes(one.memory_bytes[at])], ["limit", (one, at) => (one.limit_bytes[at] ? bytes(one.limit_bytes[at]) : "none")],
    ["on disk", (one, at) => bytes(one.disk_bytes[at])], ["works", (one, at) => ((one.busy || []).length ? percent(one.busy[at]) : "–")], ["rows", (one, at) => count(one.rows[at])],
    ["rows in", (one, at) => count(one.rows_in[at])], ["rows out", (one, at) => count(one.rows_out[at])], ["waiting", (one, at) => count((one.waiting_rows || [])[at] || 0)], ["plan", (one, at) => (one.shapes || [])[at] || "–"],
  ];
  const MOST_ROWS = 64;
  function drawTable() {
    const one = model.slots.get(stage);
    if (!one || !$("slot-details").open) return;
    const from = heat.state.plan ? heat.state.plan.view.from : 0;
    const shown = Math.min(MOST_ROWS, one.memory_bytes.length - from);
    const head = make("tr", "", ...COLUMNS.map(([name]) => set(make("th", "", name), { scope: "col" })));
    const rows = Array.from({ length: Math.max(0, shown) }, (_, row) => make("tr", "", ...COLUMNS.map(([, of], at) => (at ? make("td", "", String(of(one, from + row))) : set(make("th", "", String(of(one, from + row))), { scope: "row" })))));
    const caption = make("caption", "", `Slots after batch ${one.batch}${one.memory_bytes.length > shown ? `, ${from} to ${from + shown - 1}; zoom the map to see others` : ""}`);
    $("slot-table").replaceChildren(make("table", "", caption, make("thead", "", head), make("tbody", "", ...rows)));
  }

  function theme(wanted) {
    document.documentElement.dataset.theme = wanted;
    say($("theme"), wanted === "dark" ? "Light" : "Dark");
    $("theme").setAttribute("aria-label", `Use ${wanted === "dark" ? "light" : "dark"} colours`);
    charts.forget();
    later();
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  $("metric").addEventListener("change", (event) => { heat.state.metric = event.target.value; later(); });
  $("zoom-in").addEventListener("click", () => heat.zoom(0.5));
  $("zoom-out").addEventListener("click", () => heat.zoom(2));
  $("slot-details").addEventListener("toggle", later);
  new ResizeObserver(() => { charts.resize(); later(); }).observe($("main"));
  setInterval(() => { if (!document.hidden) { drawHead(); if (model.about) drawNow(); } }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) later(); });

  spillway.page = { model, heat, take };
  const recording = $("recording");
  if (recording) spillway.sources.recorded(recording, take, () => { const keep = model.about; Object.assign(model, spillway.model.create(), { about: keep }); $("timeline").replaceChildren(); });
  else spillway.sources.live(take, () => { connected = false; drawHead(); });
})();
