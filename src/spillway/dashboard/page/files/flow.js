// The path of the rows: streams, split, slots, sink, with rates; the join trees and the ring of slices.
"use strict";

spillway.flow = (() => {
  const { make, set, rate, count, plural, percent, bytes } = spillway.text;
  const { sum, ratesOf, pointsOf, holder } = spillway.model;
  const MOST_SLOTS = 8, MOST_STREAMS = 6;

  const box = (x, y, w, h, title, note, kind) => {
    const group = make("svg:g", `box ${kind}`);
    group.append(set(make("svg:rect"), { x, y, width: w, height: h, rx: 7 }));
    const first = set(make("svg:text", "title", title), { x: x + w / 2, y: y + h / 2 - (note ? 5 : -4), "text-anchor": "middle" });
    group.append(first);
    if (note) group.append(set(make("svg:text", "note", note), { x: x + w / 2, y: y + h / 2 + 11, "text-anchor": "middle" }));
    return group;
  };

  function edge(x1, y1, x2, y2, rows, down, label) {
    const wide = rows > 0 ? Math.min(9, 1.2 + Math.log10(1 + rows) * 1.1) : 1;
    const d = down ? `M${x1},${y1} C${x1},${(y1 + y2) / 2} ${x2},${(y1 + y2) / 2} ${x2},${y2}`
      : `M${x1},${y1} C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2} ${x2},${y2}`;
    const found = [set(make("svg:path", rows > 0 ? "edge" : "edge idle"), { d, "stroke-width": wide.toFixed(1) })];
    if (label) found.push(set(make("svg:text", "rate", label), { x: x2 - 8, y: y2 - 7, "text-anchor": "end" }));
    return found;
  }

  // The nodes, column by column: a list of [title, note, kind, rows in, rows out] for each.
  function columns(model) {
    const { stages } = model.about, found = [];
    stages.forEach((stage, at) => {
      const points = pointsOf(model, at), rates = ratesOf(points), last = points[points.length - 1];
      const slots = model.slots.get(at), held = holder(last);
      if (at === 0) {
        const streams = stage.streams.slice(0, MOST_STREAMS).map((name, index) => ({ title: cut(name, 18), note: `${rate(rates.streams[index] || 0)}${held && held.stream === index && held.behind > 0.1 ? "/s · holds watermark" : " rows/s"}`, kind: "stream", rows: rates.streams[index] || 0 }));
        if (stage.streams.length > MOST_STREAMS) streams.push({ title: `${stage.streams.length - MOST_STREAMS} more`, note: "", kind: "stream", rows: sum(rates.streams.slice(MOST_STREAMS)) });
        found.push(streams);
      }
      found.push([{ title: "split", note: stage.distribute ? stage.distribute : `${count(stage.groups)} groups`, kind: "split", rows: rates.in }]);
      found.push(slotNodes(slots, rates, stage, last));
    });
    const last = stages.length - 1;
    found.push([{ title: model.about.sink || "sink", note: `${rate(ratesOf(pointsOf(model, last)).out)} rows/s`, kind: "sink", rows: ratesOf(pointsOf(model, last)).out }]);
    return found;
  }

  function slotNodes(slots, rates, stage, last) {
    const number = slots ? slots.memory_bytes.length : 0;
    if (!number) return [{ title: stage.operator, note: "", kind: "slot", rows: rates.in }];
    const known = sum(slots.rows_in) > 0, busy = slots.busy || [];
    const share = (at) => (known ? slots.rows_in[at] / sum(slots.rows_in) : 1 / number);
    const one = (at) => ({ title: `slot ${at}`, note: `${bytes(slots.memory_bytes[at])}${busy.length ? ` · ${percent(busy[at])}` : ""}`, kind: "slot", rows: rates.in * share(at) });
    if (number <= MOST_SLOTS) return Array.from({ length: number }, (_, at) => one(at));
    const ranked = Array.from({ length: number }, (_, at) => at).sort((a, b) => slots.memory_bytes[b] - slots.memory_bytes[a]);
    const shown = ranked.slice(0, 4).sort((a, b) => a - b), rest = ranked.slice(4);
    return [...shown.map(one), { title: `${number - 4} other slots`, note: `${bytes(sum(rest.map((at) => slots.memory_bytes[at])))}`, kind: "slot", rows: rates.in * sum(rest.map(share)) }];
  }

  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  function draw(place, shapesPlace, model) {
    if (!model.about) return;
    const wide = place.clientWidth, down = wide < 620;
    // Not laid out yet; the page draws again when it is.
    if (wide < 200) return;
    const parts = columns(model);
    const svg = down ? vertical(parts, wide) : horizontal(parts, wide);
    set(svg, { role: "img", "aria-label": parts.map((one) => one.map((node) => `${node.title} ${node.note}`).join(", ")).join("; then ") });
    place.replaceChildren(svg);
    drawShapes(shapesPlace, model);
  }

  function horizontal(parts, wide) {
    const high = 42, gap = 10, most = Math.max(...parts.map((one) => one.length));
    const height = most * (high + gap) + 8, w = Math.max(60, Math.min(168, (wide - (parts.length - 1) * 40) / parts.length));
    const step = parts.length > 1 ? (wide - w - 4) / (parts.length - 1) : 0;
    const svg = set(make("svg:svg"), { viewBox: `0 0 ${wide} ${height}`, width: wide, height });
    const at = parts.map((nodes, column) => nodes.map((_, row) => [2 + column * step, (height - nodes.length * (high + gap) + gap) / 2 + row * (high + gap)]));
    const edges = make("svg:g"), boxes = make("svg:g");
    connect(parts, (a, b, rows, label) => edges.append(...edge(at[a[0]][a[1]][0] + w, at[a[0]][a[1]][1] + high / 2, at[b[0]][b[1]][0], at[b[0]][b[1]][1] + high / 2, rows, false, label)));
    parts.forEach((nodes, column) => nodes.forEach((node, row) => boxes.append(box(...at[column][row], w, high, node.title, node.note, node.kind))));
    svg.append(edges, boxes);
    return svg;
  }

  function vertical(parts, wide) {
    const high = 40, between = 30, perLine = 3;
    const lines = [];
    let y = 2;
    const at = parts.map((nodes) => {
      const wrapped = nodes.length > perLine ? Math.ceil(nodes.length / 2) : nodes.length;
      const w = (wide - (wrapped - 1) * 8 - 4) / wrapped;
      const found = nodes.map((_, row) => [2 + (row % wrapped) * (w + 8), y + Math.floor(row / wrapped) * (high + 8), w]);
      y += Math.ceil(nodes.length / wrapped) * (high + 8) - 8 + between;
      return found;
    });
    const height = y - between + 4;
    const svg = set(make("svg:svg"), { viewBox: `0 0 ${wide} ${height}`, width: wide, height });
    const edges = make("svg:g"), boxes = make("svg:g");
    connect(parts, (a, b, rows) => { const [x1, y1, w1] = at[a[0]][a[1]], [x2, y2, w2] = at[b[0]][b[1]]; lines.push(...edge(x1 + w1 / 2, y1 + high, x2 + w2 / 2, y2, rows, true)); });
    edges.append(...lines);
    parts.forEach((nodes, column) => nodes.forEach((node, row) => { const [x, top, w] = at[column][row]; boxes.append(box(x, top, w, high, cut(node.title, Math.floor(w / 8)), cut(node.note, Math.floor(w / 6)), node.kind)); }));
    svg.append(edges, boxes);
    return svg;
  }

  function connect(parts, line) {
    for (let column = 1; column < parts.length; column += 1) {
      parts[column - 1].forEach((before, a) => parts[column].forEach((after, b) => {
        const many = parts[column - 1].length > 1 ? before : after;
        line([column - 1, a], [column, b], many.rows, parts[column].length > 1 && parts[column][0].kind === "slot" ? rate(many.rows) : "");
      }));
    }
  }

  // "((a b) c)" as a nested list.
  function parse(text) {
    const words = text.match(/[()]|[^\s()]+/g) || [], stack = [[]];
    for (const word of words) {
      if (word === "(") stack.push([]);
      else if (word === ")" && stack.length > 1) { const done = stack.pop(); stack[stack.length - 1].push(done); }
      else stack[stack.length - 1].push(word);
    }
    return stack[0].length === 1 ? stack[0][0] : stack[0];
  }

  function tree(shape) {
    let leaves = 0;
    const nodes = [], lines = [];
    const depth = (one) => (Array.isArray(one) ? 1 + Math.max(0, ...one.map(depth)) : 0);
    const high = depth(shape);
    function put(one, level) {
      if (!Array.isArray(one)) { const x = 36 + leaves * 62; leaves += 1; nodes.push([x, 20 + high * 34, one, true]); return [x, 20 + high * 34]; }
      const children = one.map((child) => put(child, level + 1));
      const x = sum(children.map((child) => child[0])) / Math.max(1, children.length), y = 20 + level * 34;
      children.forEach((child) => lines.push([x, y, ...child]));
      nodes.push([x, y, level === 0 ? "results" : "stored", false]);
      return [x, y];
    }
    put(shape, 0);
    const w = Math.max(90, leaves * 62 + 10), h = 38 + high * 34;
    const svg = set(make("svg:svg", "tree"), { viewBox: `0 0 ${w} ${h}`, width: w, height: h, "aria-hidden": "true" });
    lines.forEach(([x1, y1, x2, y2]) => svg.append(set(make("svg:path", "edge"), { d: `M${x1},${y1} L${x2},${y2}`, "stroke-width": 1.6 })));
    nodes.forEach(([x, y, name, leaf]) => {
      svg.append(set(make("svg:circle", leaf ? "leaf" : "node"), { cx: x, cy: y, r: leaf ? 4 : 7 }),
        set(make("svg:text", "note", cut(name, 9)), { x: leaf ? x : x + 11, y: leaf ? y + 13 : y + 4, "text-anchor": leaf ? "middle" : "start" }));
    });
    return svg;
  }

  function ring(frame, slots, stage) {
    const size = 190, middle = size / 2, r = 68, by = new Array(slots).fill(0);
    frame.slot.forEach((slot) => { if (slot < slots) by[slot] += 1; });
    const svg = set(make("svg:svg", "ring"), { viewBox: `0 0 ${size} ${size}`, width: size, height: size, role: "img",
      "aria-label": `Ring of ${plural(frame.slot.length, "slice")} of time in ${plural(slots, "slot")}: ${by.map((n, at) => `slot ${at} has ${n}`).join(", ")}` });
    const colors = spillway.heat.ramp("--heat-bytes"), total = frame.slot.length;
    let most = 1;
    for (let at = 0; at < total; at += 1) most = Math.max(most, frame.memory[at] + frame.disk[at]);
    const shown = Math.min(total, 360), per = total / shown;
    for (let at = 0; at < shown; at += 1) {
      const one = Math.floor(at * per), a = (at / shown) * 2 * Math.PI - Math.PI / 2, b = ((at + 1) / shown) * 2 * Math.PI - Math.PI / 2;
      const wide = 26, point = (angle, radius) => `${(middle + radius * Math.cos(angle)).toFixed(2)},${(middle + radius * Math.sin(angle)).toFixed(2)}`;
      const part = set(make("svg:path"), { d: `M${point(a, r)} A${r},${r} 0 0 1 ${point(b, r)} L${point(b, r + wide)} A${r + wide},${r + wide} 0 0 0 ${point(a, r + wide)} Z`,
        fill: colors[Math.min(63, Math.floor(Math.sqrt((frame.memory[one] + frame.disk[one]) / most) * 63.99))], class: "slice" });
      svg.append(part);
    }
    svg.append(set(make("svg:text", "title", plural(total, "slice")), { x: middle, y: middle - 4, "text-anchor": "middle" }),
      set(make("svg:text", "note", `${stage.distribute}, ${plural(slots, "slot")}`), { x: middle, y: middle + 13, "text-anchor": "middle" }));
    return svg;
  }

  function drawShapes(place, model) {
    const found = [];
    model.about.stages.forEach((stage, at) => {
      const slots = model.slots.get(at), frame = model.heats.get(at);
      if (slots && (slots.shapes || []).some((one) => one)) {
        const same = new Map();
        slots.shapes.forEach((one, slot) => same.set(one, [...(same.get(one) || []), slot]));
        for (const [shape, members] of [...same].slice(0, 6)) {
          const names = members.length > 6 ? plural(members.length, "slot") : `slot ${members.join(", ")}`;
          found.push(make("figure", "", tree(parse(shape)), make("figcaption", "", `plan ${shape}: ${names}`)));
        }
      }
      if (stage.distribute && frame && slots) found.push(make("figure", "", ring(frame, slots.memory_bytes.length, stage), make("figcaption", "", "Slices of time; every new row visits all slots. Colour: bytes.")));
    });
    place.hidden = !found.length;
    const key = JSON.stringify([...model.slots.values()].map((one) => one.shapes)) + [...model.heats.values()].map((one) => one.batch).join() + document.documentElement.dataset.theme;
    if (place.dataset.key === key) return;
    place.dataset.key = key;
    place.replaceChildren(...found);
  }

  return { draw, parse };
})();
