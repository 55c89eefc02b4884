// The timeline: what the query did, newest first, with the numbers that led to it.
"use strict";

spillway.timeline = (() => {
  const { make, set, bytes, count, seconds, moment, plural } = spillway.text;
  const { link, named, chapterOf, STEPS, RELOCATION, TRACK } = spillway.chapters;
  const SHOWN = 60;

  // One line as plain values: its title, its category, whether it is done.
  function summary(line) {
    const last = line.steps.length ? line.steps[line.steps.length - 1] : line.of;
    const category = spillway.model.category(last.kind);
    if (line.steps.length) {
      const biggest = line.steps.reduce((a, b) => (b.groups > a.groups ? b : a));
      const track = line.steps.some((one) => chapterOf(one.kind) === "track");
      const size = biggest.groups ? ` · ${plural(biggest.groups, "group")}, ${bytes(biggest.bytes)}` : "";
      const took = line.steps.reduce((total, one) => total + (one.seconds || 0), 0);
      const failed = category === "failure";
      const none = last.kind === "groups-chosen" && !last.groups;
      return { category, title: `Slot ${last.slot} → slot ${last.receiver}${size}`, chapter: failed ? chapterOf(last.kind) : track ? "track" : "relocation",
        reason: line.steps[0].reason, note: failed ? last.reason : none ? `no group fits: ${last.reason}` : line.done ? `done in ${seconds(took)}` : `now: ${STEPS[last.kind] || named(last.kind)}`, done: line.done, track };
    }
    const one = line.of, where = one.slot === undefined || one.slot === null ? "" : ` · slot ${one.slot}`;
    const size = one.groups ? ` · ${plural(one.groups, "group")}, ${bytes(one.bytes)}` : "";
    const results = one.rows_out ? `${plural(one.rows_out, "result")} that were missing` : "";
    const shapes = one.shapes && one.shapes.length ? `${one.shapes[0] || "none"} → ${one.shapes[1]}` : "";
    const took = one.seconds ? `took ${seconds(one.seconds)}` : "";
    return { category, title: `${named(one.kind)}${where}${size}`, chapter: chapterOf(one.kind), reason: one.reason,
      note: [shapes, results, took].filter(Boolean).join(" · "), done: true };
  }

  // The same as a sentence, for people who do not know the words.
  function sentence(line) {
    const last = line.steps.length ? line.steps[line.steps.length - 1] : line.of;
    const some = last.groups ? `${plural(last.groups, "group")} (${bytes(last.bytes)})` : "groups";
    switch (last.kind) {
      case "spilled": return `Slot ${last.slot} was full and wrote ${some} to its disk.`;
      case "force-spilled": return `Slot ${last.slot} wrote ${some} to its disk, to make room for more productive groups.`;
      case "cleaned-up": return `Slot ${last.slot} made ${plural(last.rows_out || 0, "result")} that were missing.`;
      case "reloaded": return `Slot ${last.slot} took ${some} back into memory.`;
      case "reshaped": return `Slot ${last.slot} changes its join plan.`;
      case "groups-reactivated": case "groups-deleted": return `Slot ${last.receiver} has taken over ${some} from slot ${last.slot}.`;
      default: return line.steps.length ? `Slot ${last.slot} → slot ${last.receiver}: ${STEPS[last.kind] || named(last.kind).toLowerCase()}.` : `${summary(line).title}.`;
    }
  }

  // What the numbers of a reason mean, where a policy of the papers gives them.
  function gloss(reason) {
    const part = (text) => `${Math.round(Number(text) * 100)} %`;
    const least = /M_least\/M_max = ([\d.]+) < ([\d.]+)/.exec(reason);
    if (least) return `${reason}: the emptiest slot has ${part(least[1])} of the state of the fullest, less than ${part(least[2])}`;
    const full = /^(\d+) bytes in memory, limit (\d+): (.*)$/.exec(reason);
    if (full) return `${bytes(Number(full[1]))} in memory, limit ${bytes(Number(full[2]))}; ${full[3]} groups first`;
    const most = /U_max\/U_min = ([\d.]+)\/([\d.]+)/.exec(reason);
    if (most) return `${reason}: the busiest slot works ${part(most[1])} of the time, the idlest ${part(most[2])}`;
    return reason;
  }

  function stepsOf(line, track) {
    const order = track ? TRACK : RELOCATION;
    const reached = new Map(line.steps.map((one) => [one.kind, one]));
    const longest = Math.max(1e-9, ...line.steps.map((one) => one.seconds || 0));
    const list = make("ol", "steps");
    for (const [at, kind] of order.entries()) {
      const step = reached.get(kind);
      const bar = make("i", "bar");
      if (step) bar.style.width = `${Math.max(2, Math.round(((step.seconds || 0) / longest) * 60))}px`;
      list.append(make("li", step ? "reached" : "", make("span", "what", `${at + 1}. ${STEPS[kind]}`),
        step ? make("span", "took", bar, ` ${seconds(step.seconds || 0)}`) : null,
        step && step.message ? make("code", "", step.message) : null));
    }
    for (const step of line.steps) if (!order.includes(step.kind)) list.append(make("li", "reached", make("span", "what", `${named(step.kind)}: ${step.reason}`)));
    return list;
  }

  function item(line, clock) {
    const said = summary(line);
    const mark = set(make("span", `mark ${said.category}`), { "aria-hidden": "true" });
    const head = make("p", "head", mark, make("strong", "", said.title), make("time", "", moment(line.at, clock)));
    const reason = said.reason ? make("p", "reason", said.reason) : null;
    const note = make("p", "note", said.note ? `${said.note} · ` : "", link(said.chapter));
    const body = make("li", `event ${said.category}${said.done ? "" : " open"}`, head, reason, note);
    if (line.steps.length) body.append(make("details", "", make("summary", "", `${line.steps.length} steps of the protocol`), stepsOf(line, said.track)));
    return body;
  }

  function create(place) {
    let items = new Map();

    function draw(model, stage) {
      if (!model.about) return;
      const story = spillway.model.story(model, stage).slice(0, SHOWN);
      if (!story.length) return;
      const next = new Map(), wanted = [];
      for (const line of story) {
        const key = `${model.about.run} ${line.of.number} ${line.of.kind} ${line.of.at_s}`, version = line.steps.length;
        const before = items.get(key);
        let element = before && before.version === version ? before.element : item(line, model.about.clock);
        if (before && before.version !== version) {
          // An opened line stays open when it gets a step.
          const opened = before.element.querySelector("details"), own = element.querySelector("details");
          if (opened && own) own.open = opened.open;
        }
        next.set(key, { version, element });
        wanted.push(element);
      }
      items = next;
      wanted.forEach((element, at) => { if (place.children[at] !== element) place.insertBefore(element, place.children[at] || null); });
      while (place.children.length > wanted.length) place.lastChild.remove();
    }

    return { draw };
  }

  return { create, summary, sentence, gloss };
})();
