// The map: a row for each slot, with its memory, its work, and a square for each of its groups.
//
// A canvas, because a cluster may have 100,000 groups. What does not fit is drawn together: several groups
// in a square, several slots in a row. Zooming shows fewer slots. `layout` is a function of values.
"use strict";

spillway.heat = (() => {
  const { bytes, count, rate, percent, plural, color, say } = spillway.text;
  const LEAST_ROW = 4, MOST_ROW = 44, MOST_CELL = 22, LEAST_CELL = 3;
  const RECENT_S = 8, MOST_ARROWS = 6;
  const METRICS = {
    bytes: { name: "bytes", of: (f, g) => f.memory[g] + f.disk[g], show: bytes, scale: "--heat-bytes" },
    productivity: { name: "results per MB", of: (f, g) => f.productivity[g], show: rate, scale: "--heat-productivity" },
    load: { name: "rows per batch", of: (f, g) => f.load[g], show: rate, scale: "--heat-load" },
  };

  // Groups by slot, as one array of group numbers and the place where each slot begins.
  function bySlot(frame, slots) {
    const begins = new Int32Array(slots + 1);
    for (const slot of frame.slot) if (slot < slots) begins[slot + 1] += 1;
    for (let at = 0; at < slots; at += 1) begins[at + 1] += begins[at];
    const place = begins.slice(), order = new Int32Array(frame.slot.length);
    frame.slot.forEach((slot, group) => { if (slot < slots) { order[place[slot]] = group; place[slot] += 1; } });
    return { begins, order };
  }

  // Where everything is drawn. `view` is the range of slots that is shown.
  function layout(frame, slots, view, width, mostHeight) {
    const shown = view.to - view.from;
    const perRow = Math.max(1, Math.ceil((shown * LEAST_ROW) / mostHeight));
    const rows = Math.ceil(shown / perRow);
    const rowHeight = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(mostHeight / rows)));
    const narrow = width < 560;
    const label = narrow ? 30 : 58, gauge = narrow ? 56 : 150, busy = narrow ? 0 : 46;
    const left = label + gauge + busy + 12;
    const { begins, order } = bySlot(frame, slots);
    const lengths = Array.from({ length: rows }, (_, row) => begins[Math.min(view.to, view.from + (row + 1) * perRow)] - begins[view.from + row * perRow]);
    const ranked = [...lengths].sort((a, b) => a - b), usual = ranked[Math.floor(rows / 2)] || 1;
    // Squares are equal in all rows of up to 1.7 times the usual length; a longer row has narrower ones.
    const longest = Math.max(1, Math.min(ranked[rows - 1], Math.ceil(usual * 1.7)));
    const room = Math.max(LEAST_CELL, width - left - 2);
    const fitted = (length) => {
      const per = Math.max(1, Math.ceil((length * LEAST_CELL) / room));
      return { per, cell: Math.min(MOST_CELL, room / Math.ceil(length / per)) };
    };
    const common = fitted(longest);
    const cells = lengths.map((length) => (length > longest ? fitted(length) : common));
    return { rows, perRow, perCell: common.per, cells, rowHeight, left, label, gauge, busy, begins, order,
      width, height: rows * rowHeight, view, slots };
  }

  function rowSlots(plan, row) {
    const from = plan.view.from + row * plan.perRow;
    return [from, Math.min(plan.view.to, from + plan.perRow)];
  }

  // The groups of a cell.
  function cellGroups(plan, row, at) {
    const [from, to] = rowSlots(plan, row);
    const { per } = plan.cells[row], begin = plan.begins[from] + at * per;
    return begin < plan.begins[to] ? plan.order.subarray(begin, Math.min(begin + per, plan.begins[to])) : null;
  }

  // The row and cell of one group, for marks and arrows; the groups of a slot are in ascending order.
  function placeOf(plan, frame, group) {
    const slot = frame.slot[group];
    if (slot === undefined || slot < plan.view.from || slot >= plan.view.to) return null;
    const row = Math.floor((slot - plan.view.from) / plan.perRow);
    let low = plan.begins[slot], high = plan.begins[slot + 1];
    while (low < high) { const middle = (low + high) >> 1; if (plan.order[middle] < group) low = middle + 1; else high = middle; }
    return [row, Math.floor((low - plan.begins[rowSlots(plan, row)[0]]) / plan.cells[row].per)];
  }

  function ramp(name) {
    const stops = color(name).split(/\s+/).map((one) => [1, 3, 5].map((at) => parseInt(one.slice(at, at + 2), 16)));
    return Array.from({ length: 64 }, (_, at) => {
      const x = (at / 63) * (stops.length - 1), low = Math.min(Math.floor(x), stops.length - 2), part = x - low;
      return `rgb(${[0, 1, 2].map((c) => Math.round(stops[low][c] + part * (stops[low + 1][c] - stops[low][c]))).join(",")})`;
    });
  }

  // Groups that a move or a spill has just touched, and the arrows to draw.
  function recent(model, stage, now) {
    const arrows = [], spilled = new Set(), arrived = new Set(), seen = new Set();
    for (const move of (model.slots.get(stage) || { moves: [] }).moves || []) {
      arrows.push({ ...move, fresh: 1 });
      seen.add(move.move);
    }
    const lines = model.happenings;
    for (let at = lines.length - 1; at >= 0 && lines[at].at_s > now - RECENT_S; at -= 1) {
      const one = lines[at];
      if (one.stage !== stage) continue;
      const fresh = 1 - (now - one.at_s) / RECENT_S;
      if (one.kind === "spilled" || one.kind === "force-spilled") (one.some || []).forEach((g) => spilled.add(g));
      if (one.move !== undefined && !seen.has(one.move) && arrows.length < MOST_ARROWS && spillway.model.ENDS.includes(one.kind)) {
        seen.add(one.move);
        arrows.push({ ...one, sender: one.slot, fresh, ended: true });
        (one.some || []).forEach((g) => arrived.add(g));
      }
    }
    return { arrows, spilled, arrived };
  }

  function create(canvas, tip, spoken, chosen) {
    const state = { metric: "bytes", view: null, plan: null, frame: null, cursor: null, pinned: null, drawn: "" };
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    let hatch = null, hatchOf = "";

    function slotsOf(model, stage, frame) {
      const known = model.slots.get(stage);
      const highest = frame ? frame.slot.reduce((most, one) => Math.max(most, one + 1), 1) : 1;
      return Math.max(known ? known.memory_bytes.length : 1, highest);
    }

    function draw(model, stage, now) {
      const frame = model.heats.get(stage);
      const width = canvas.parentElement.clientWidth;
      if (!width) return;
      const slots = slotsOf(model, stage, frame);
      if (!state.view || state.view.whole || state.view.to > slots) state.view = { from: 0, to: slots, whole: !state.view || state.view.whole };
      if (state.view.whole) state.view.to = slots;
      const shownFrame = frame || { slot: new Int32Array(0), memory: [], disk: [], load: [], productivity: [] };
      const plan = layout(shownFrame, slots, state.view, width, width < 560 ? 420 : 560);
      state.plan = plan; state.frame = frame || null; state.stage = stage; state.model = model;
      const ratio = window.devicePixelRatio || 1;
      const size = `${width}x${plan.height}x${ratio}`;
      if (size !== state.size) {
        state.size = size;
        canvas.width = Math.round(width * ratio); canvas.height = Math.round(plan.height * ratio);
        canvas.style.width = `${width}px`; canvas.style.height = `${plan.height}px`;
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, plan.height);
      const paint = { ink: color("--ink"), soft: color("--soft"), line: color("--line"), empty: color("--empty"),
        spill: color("--spill"), move: color("--move"), fill: color("--memory"), over: color("--failure"), card: color("--card") };
      pattern(pen, paint);
      const touched = recent(model, stage, now);
      drawSlots(pen, plan, model.slots.get(stage), paint);
      const most = frame ? drawGroups(pen, plan, frame, paint) : 0;
      if (frame) drawMarks(pen, plan, touched, paint, now);
      describe(model, stage, plan, frame);
      return { most, busy: touched.arrows.length > 0 };
    }

    function pattern(pen, paint) {
      if (hatchOf === paint.spill) return;
      hatchOf = paint.spill;
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const brush = tile.getContext("2d");
      brush.strokeStyle = paint.spill; brush.lineWidth = 1.6;
      for (const x of [-3, 3, 9]) { brush.beginPath(); brush.moveTo(x - 4, 7); brush.lineTo(x + 4, -1); brush.stroke(); }
      hatch = pen.createPattern(tile, "repeat");
    }

    function drawSlots(pen, plan, known, paint) {
      pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
      const top = known ? Math.max(1, ...known.memory_bytes.map((one, at) => Math.max(one, known.limit_bytes[at] || 0))) : 1;
      for (let row = 0; row < plan.rows; row += 1) {
        const [from, to] = rowSlots(plan, row), y = row * plan.rowHeight, high = plan.rowHeight - (plan.rowHeight > 8 ? 3 : 1);
        if (plan.rowHeight >= 12 || (plan.rowHeight * row) % 48 < plan.rowHeight) {
          pen.fillStyle = paint.soft;
          const name = plan.perRow > 1 ? `${from}–${to - 1}` : `${from}`;
          pen.fillText(plan.label > 40 && plan.rowHeight >= 12 && plan.perRow === 1 ? `slot ${name}` : name, 0, y + plan.rowHeight / 2);
        }
        if (known) drawGauge(pen, plan, known, paint, from, to, y, high, top);
        const groups = plan.begins[to] - plan.begins[from];
        if (!groups && plan.rowHeight >= 12) { pen.fillStyle = paint.soft; pen.fillText("no groups", plan.left, y + plan.rowHeight / 2); }
      }
    }

    function drawGauge(pen, plan, known, paint, from, to, y, high, top) {
      let memory = 0, limit = 0, busy = 0, limited = true;
      for (let slot = from; slot < to; slot += 1) {
        memory = Math.max(memory, known.memory_bytes[slot] || 0);
        if (known.limit_bytes[slot]) limit = Math.max(limit, known.limit_bytes[slot]); else limited = false;
        busy = Math.max(busy, (known.busy || [])[slot] || 0);
      }
      const x = plan.label, wide = plan.gauge - 8, scale = wide / top;
      pen.fillStyle = paint.empty; pen.fillRect(x, y, wide, high);
      pen.fillStyle = limited && memory >= limit ? paint.over : paint.fill;
      pen.fillRect(x, y, Math.max(memory ? 1 : 0, memory * scale), high);
      if (limited) { pen.fillStyle = paint.ink; pen.fillRect(x + Math.min(wide - 2, limit * scale - 1), y, 2, high); }
      if (plan.rowHeight >= 14 && plan.gauge > 100) {
        const said = bytes(memory), size = pen.measureText(said).width;
        const inside = memory * scale > size + 8;
        pen.fillStyle = inside ? color("--on-memory") : paint.ink;
        pen.fillText(said, inside ? x + 4 : x + memory * scale + 4, y + high / 2 + 0.5);
      }
      if (plan.busy && (known.busy || []).length) {
        const at = plan.label + plan.gauge;
        if (plan.rowHeight >= 12) { pen.fillStyle = busy > 0.9 ? paint.over : paint.soft; pen.fillText(percent(busy), at, y + plan.rowHeight / 2); }
        else { pen.fillStyle = paint.soft; pen.fillRect(at, y, busy * (plan.busy - 10), high); }
      }
    }

    function drawGroups(pen, plan, frame, paint) {
      const metric = METRICS[state.metric], colors = ramp(metric.scale);
      const values = [];
      let most = 0;
      const high = plan.rowHeight - (plan.rowHeight > 8 ? 3 : 1), gap = (cell) => Math.max(1, cell - (cell > 5 ? 1.5 : cell >= 3 ? 0.5 : 0));
      for (let row = 0; row < plan.rows; row += 1) {
        const [from, to] = rowSlots(plan, row), begin = plan.begins[from], end = plan.begins[to];
        const { per } = plan.cells[row];
        for (let at = begin, cell = 0; at < end; at += per, cell += 1) {
          let value = 0, memory = 0, disk = 0;
          const until = Math.min(end, at + per);
          for (let one = at; one < until; one += 1) {
            const group = plan.order[one];
            value += metric.of(frame, group); memory += frame.memory[group]; disk += frame.disk[group];
          }
          value /= until - at;
          most = Math.max(most, value);
          values.push(row, cell, value, disk / Math.max(1, memory + disk), memory + disk);
        }
      }
      for (let at = 0; at < values.length; at += 5) {
        const [row, cell, value, disk, size] = [values[at], values[at + 1], values[at + 2], values[at + 3], values[at + 4]];
        const own = plan.cells[row].cell, x = plan.left + cell * own, y = row * plan.rowHeight, wide = gap(own);
        pen.fillStyle = size === 0 && value === 0 ? paint.empty : colors[Math.min(63, Math.floor(Math.sqrt(value / (most || 1)) * 63.99))];
        pen.fillRect(x, y, wide, high);
        if (disk > 0.02) {
          // The part on disk is hatched, from below.
          const part = Math.max(Math.min(3, high), high * disk);
          pen.fillStyle = paint.card; pen.fillRect(x, y + high - part, wide, part);
          pen.fillStyle = high < 7 ? paint.spill : hatch; pen.fillRect(x, y + high - part, wide, part);
        }
      }
      return most;
    }

    function outline(pen, plan, place, width, stroke) {
      pen.strokeStyle = stroke; pen.lineWidth = width;
      const { cell } = plan.cells[place[0]];
      pen.strokeRect(plan.left + place[1] * cell - 0.75, place[0] * plan.rowHeight - 0.75 + (place[0] ? 0 : 1), Math.max(3, cell), plan.rowHeight - 1.5);
    }

    function drawMarks(pen, plan, touched, paint, now) {
      const where = { get: (group) => placeOf(plan, state.frame, group) };
      for (const group of touched.spilled) { const at = where.get(group); if (at) outline(pen, plan, at, 1.5, paint.spill); }
      for (const arrow of touched.arrows) {
        const row = (slot) => (slot >= plan.view.from && slot < plan.view.to ? Math.floor((slot - plan.view.from) / plan.perRow) : null);
        const from = row(arrow.sender), to = row(arrow.receiver);
        for (const group of arrow.some || []) { const at = where.get(group); if (at) outline(pen, plan, at, 2, paint.move); }
        if (from === null || to === null) continue;
        drawArrow(pen, plan, where, arrow, from, to, paint, now);
      }
      for (const [group, width] of [[state.pinned, 3], [state.cursor, 2]]) {
        const at = group === null ? null : where.get(group);
        if (at) outline(pen, plan, at, width, paint.ink);
      }
    }

    function drawArrow(pen, plan, where, arrow, from, to, paint, now) {
      const middle = (row) => row * plan.rowHeight + plan.rowHeight / 2 - 1;
      const first = (arrow.some || []).map((group) => where.get(group)).find((at) => at);
      const end = (row) => {
        const [a, b] = rowSlots(plan, row);
        const { per, cell } = plan.cells[row];
        return plan.left + Math.min(Math.ceil((plan.begins[b] - plan.begins[a]) / per) * cell, plan.width - plan.left - 14);
      };
      const at = (row) => (first && first[0] === row ? plan.left + (first[1] + 0.5) * plan.cells[row].cell : Math.max(plan.left + 8, end(row) - 6));
      const x1 = at(from), x2 = at(to);
      const y1 = middle(from), y2 = middle(to), bend = Math.min(plan.width - 6, Math.max(x1, x2) + 36 + Math.abs(y2 - y1) * 0.12);
      pen.save();
      pen.globalAlpha = arrow.ended ? 0.25 + 0.75 * arrow.fresh : 1;
      pen.lineWidth = 2.5; pen.lineJoin = "round";
      for (const [stroke, width] of [[paint.card, 6], [paint.move, 2.5]]) {
        pen.strokeStyle = stroke; pen.lineWidth = width;
        if (!arrow.ended && stroke === paint.move) { pen.setLineDash([7, 4]); pen.lineDashOffset = still.matches ? 0 : -(performance.now() / 40) % 11; }
        pen.beginPath(); pen.moveTo(x1, y1); pen.bezierCurveTo(bend, y1, bend, y2, x2 + 7, y2); pen.stroke();
      }
      pen.setLineDash([]);
      pen.fillStyle = paint.move;
      pen.beginPath(); pen.moveTo(x2, y2); pen.lineTo(x2 + 10, y2 - 5.5); pen.lineTo(x2 + 10, y2 + 5.5); pen.fill();
      pen.beginPath(); pen.arc(x1, y1, 3.5, 0, 7); pen.fill();
      pen.restore();
    }

    function describe(model, stage, plan, frame) {
      const known = model.slots.get(stage);
      if (!known || !frame) return;
      const total = known.memory_bytes.reduce((a, b) => a + b, 0);
      let disk = 0;
      frame.disk.forEach((one) => { disk += one > 0 ? 1 : 0; });
      const fullest = known.memory_bytes.indexOf(Math.max(...known.memory_bytes));
      const text = `Map of ${plural(frame.slot.length, "group")} in ${plural(known.memory_bytes.length, "slot")}: ${bytes(total)} in memory, ${plural(disk, "group")} on disk; slot ${fullest} is fullest with ${bytes(known.memory_bytes[fullest])}; ${plural((known.moves || []).length, "move")} in progress`;
      if (canvas.getAttribute("aria-label") !== text) canvas.setAttribute("aria-label", text);
    }

    // The text about some groups, for the tip and for screen readers.
    function tell(groups) {
      const frame = state.frame;
      let memory = 0, disk = 0, load = 0, productivity = 0;
      for (const g of groups) { memory += frame.memory[g]; disk += frame.disk[g]; load += frame.load[g]; productivity += frame.productivity[g]; }
      const name = groups.length === 1 ? `group ${groups[0]}` : `${groups.length} groups, ${groups[0]} to ${groups[groups.length - 1]}`;
      return [`${name} · slot ${frame.slot[groups[0]]}`, `${bytes(memory)} in memory, ${bytes(disk)} on disk`,
        `${rate(load)} rows per batch, ${rate(productivity / groups.length)} results per MB`];
    }

    function tellSlot(row) {
      const [from, to] = rowSlots(state.plan, row), known = state.model.slots.get(state.stage);
      if (!known) return null;
      const at = (column) => column.slice(from, to).reduce((a, b) => Math.max(a, b || 0), 0);
      const limit = at(known.limit_bytes);
      const lines = [to - from > 1 ? `slots ${from} to ${to - 1}, the most of each` : `slot ${from}`,
        `${bytes(at(known.memory_bytes))} in memory${limit ? ` of ${bytes(limit)}` : ""}, ${bytes(at(known.disk_bytes))} on disk`];
      if ((known.busy || []).length) lines.push(`works ${percent(at(known.busy))} of the time, ${count(at(known.rows))} rows of state`);
      if ((known.shapes || [])[from]) lines.push(`plan ${known.shapes[from]}`);
      return lines;
    }

    function hit(event) {
      const plan = state.plan;
      if (!plan) return null;
      const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const row = Math.floor(y / plan.rowHeight);
      if (row < 0 || row >= plan.rows) return null;
      if (x < plan.left || !state.frame) return { row, x, y };
      const cell = Math.floor((x - plan.left) / plan.cells[row].cell);
      return { row, cell, groups: cellGroups(plan, row, cell), x, y };
    }

    function showTip(found) {
      const lines = found && (found.groups ? tell(found.groups) : found.cell === undefined ? tellSlot(found.row) : null);
      tip.hidden = !lines;
      if (!lines) return;
      tip.replaceChildren(...lines.map((line, at) => spillway.text.make(at ? "div" : "strong", "", line)));
      const wide = canvas.parentElement.clientWidth;
      tip.style.left = `${Math.max(0, Math.min(found.x + 14, wide - tip.offsetWidth - 4))}px`;
      tip.style.top = `${found.y + 18}px`;
    }

    function pin(group) {
      state.pinned = group;
      chosen(group);
    }

    function moveCursor(dx, dy) {
      const plan = state.plan;
      if (!plan || !state.frame) return;
      const at = state.cursor === null ? null : placeOf(plan, state.frame, state.cursor);
      let [row, cell] = at || [0, 0];
      if (at) { row += dy; cell += dx; }
      row = Math.max(0, Math.min(plan.rows - 1, row));
      const [from, to] = rowSlots(plan, row), cells = Math.ceil((plan.begins[to] - plan.begins[from]) / plan.cells[row].per);
      if (!cells) return;
      const groups = cellGroups(plan, row, Math.max(0, Math.min(cells - 1, cell)));
      state.cursor = groups[0];
      say(spoken, tell(groups).join("; "));
      chosen(undefined);
    }

    function zoom(factor) {
      if (!state.plan) return;
      const { slots } = state.plan, view = state.view, shown = view.to - view.from;
      const wanted = Math.max(Math.min(4, slots), Math.min(slots, Math.round(shown * factor)));
      const marked = state.cursor ?? state.pinned;
      const centre = marked !== null && state.frame ? state.frame.slot[marked] : (view.from + view.to) / 2;
      const from = Math.max(0, Math.min(slots - wanted, Math.round(centre - wanted / 2)));
      state.view = { from, to: from + wanted, whole: wanted === slots };
      chosen(undefined);
    }

    function scroll(part) {
      const { slots } = state.plan, view = state.view, shown = view.to - view.from;
      const from = Math.max(0, Math.min(slots - shown, view.from + Math.round(shown * part)));
      state.view = { from, to: from + shown, whole: view.whole };
      chosen(undefined);
    }

    canvas.addEventListener("pointermove", (event) => showTip(hit(event)));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("click", (event) => {
      const found = hit(event);
      if (found && found.groups) pin(state.pinned === found.groups[0] ? null : found.groups[0]);
    });
    canvas.addEventListener("dblclick", (event) => {
      const found = hit(event);
      if (!found) return;
      const [from] = rowSlots(state.plan, found.row), shown = Math.max(4, Math.round((state.view.to - state.view.from) / 4));
      if (shown >= state.plan.slots) return;
      const begin = Math.max(0, Math.min(state.plan.slots - shown, from - Math.round(shown / 2)));
      state.view = { from: begin, to: begin + shown, whole: false };
      chosen(undefined);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!state.plan || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.5 : 1 / 1.5);
    }, { passive: false });
    const KEYS = {
      ArrowLeft: () => moveCursor(-1, 0), ArrowRight: () => moveCursor(1, 0),
      ArrowUp: () => moveCursor(0, -1), ArrowDown: () => moveCursor(0, 1),
      Enter: () => state.cursor !== null && pin(state.cursor), " ": () => state.cursor !== null && pin(state.cursor),
      Escape: () => pin(null), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      PageDown: () => scroll(0.8), PageUp: () => scroll(-0.8),
    };
    canvas.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    return { draw, zoom, state, METRICS };
  }

  return { create, layout, bySlot, METRICS, ramp };
})();
