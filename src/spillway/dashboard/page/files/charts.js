// Lines over the last minutes, with the adaptations marked on them. uPlot draws; this file says what.
"use strict";

spillway.charts = (() => {
  const { make, color, rate, bytes, seconds, percent, count, moment, say, set } = spillway.text;
  const { sum } = spillway.model;
  const HEIGHT = 150;

  const known = (values) => values.some((one) => one !== null && one !== undefined);

  // Each panel: its title, its lines over the points of a stage, and how values are written.
  const PANELS = [
    { name: "Rows per second", show: rate, lines: (points) => [
      { name: "in", color: "--line-1", values: points.map((one, at) => perSecond(points, at, sum(one.rows_in))) },
      { name: "out", color: "--line-2", values: points.map((one, at) => perSecond(points, at, one.rows_out)) },
    ] },
    { name: "Time of a batch", show: seconds, stacked: true, lines: (points) => (points.some((one) => (one.phases_s || []).length)
      ? ["plan", "exchange and sink", "operator", "commit"].map((name, phase) => ({ name, color: `--line-${phase + 1}`, values: points.map((one) => (one.phases_s || [])[phase] ?? null) }))
      : [{ name: "batch", color: "--line-1", values: points.map((one) => one.seconds) }]) },
    { name: "State", show: bytes, lines: (points) => (known(points.map((one) => one.memory_bytes)) ? [
      { name: "in memory", color: "--line-1", values: points.map((one) => one.memory_bytes ?? null) },
      { name: "on disk", color: "--spill", values: points.map((one) => one.disk_bytes ?? null) },
    ] : []) },
    { name: "Work of the slots", show: percent, most: 1, lines: (points) => (points.some((one) => (one.busy || []).length)
      ? [["least busy", "--line-3"], ["mean", "--line-1"], ["busiest", "--line-2"]].map(([name, tint], at) => ({ name, color: tint, values: points.map((one) => (one.busy || [])[at] ?? null) }))
      : []) },
    { name: "Ahead of the watermark", show: seconds, lines: (points, about, stage) => {
      const streams = about.stages[stage].streams;
      if (!points.some((one) => (one.reached_s || []).filter((at) => at !== null).length > 1)) return [];
      return streams.slice(0, 6).map((name, at) => ({ name, color: `--line-${at % 4 + 1}`, values: points.map((one) => {
        const own = (one.reached_s || [])[at];
        const least = Math.min(...(one.reached_s || []).filter((x) => x !== null));
        return own === null || own === undefined ? null : own - least;
      }) }));
    } },
    { name: "Late and waiting rows", show: count, lines: (points) => {
      const late = points.map((one) => sum(one.rows_late)), waits = points.map((one) => one.waiting_rows || 0);
      const lines = [];
      if (late.some((one) => one)) lines.push({ name: "late, dropped", color: "--failure", values: late });
      if (waits.some((one) => one)) lines.push({ name: "waiting", color: "--line-2", values: waits });
      return lines;
    } },
  ];

  // Rows of a batch per second since the batch before.
  function perSecond(points, at, rows) {
    const one = points[at], before = points[at - 1] || one, after = points[at - 1] ? one : points[at + 1] || one;
    const span = after.at_s > before.at_s ? after.at_s - before.at_s : one.seconds;
    return span > 0 ? rows / span : null;
  }

  function create(place, marksPlace) {
    let panels = [], drawn = "";

    function build(kinds, clock) {
      panels.forEach((one) => one.plot.destroy());
      place.replaceChildren();
      panels = kinds.map(({ panel, lines }) => {
        const values = lines.map((line) => make("b", "", ""));
        const legend = make("figcaption", "", make("span", "what", panel.name), ...lines.map((line, at) => {
          const swatch = make("i", "swatch");
          swatch.style.background = color(line.color);
          return make("span", "series", swatch, `${line.name} `, values[at]);
        }));
        const figure = set(make("figure", "chart", legend), { role: "group", "aria-label": panel.name });
        place.append(figure);
        const shared = { panel, values, figure, plot: null, marks: [], gaps: [] };
        shared.plot = new uPlot(options(shared, drawnOrder(panel, lines), clock), [[], ...lines.map(() => [])], figure);
        shared.plot.root.setAttribute("aria-hidden", "true");
        return shared;
      });
    }

    function options(shared, lines, clock) {
      const grid = { stroke: color("--line"), width: 1 }, ink = color("--soft"), font = "11px system-ui, sans-serif";
      const { panel } = shared;
      return {
        width: Math.max(200, shared.figure.clientWidth), height: HEIGHT, legend: { show: false },
        cursor: { y: false, points: { size: 5 }, sync: { key: "spillway" }, drag: { x: false, y: false } },
        padding: [8, 18, 0, 0],
        scales: { x: { time: false, range: (_, low, high) => (high - low < 1 ? [low - 5, high + 5] : [low, high]) }, y: { range: (_, low, high) => [0, panel.most || (high > 0 ? high * 1.08 : 1)] } },
        axes: [
          { stroke: ink, grid: { show: false }, ticks: grid, font, size: 26, space: 64, values: (_, ticks) => ticks.map((at) => moment(at, clock)) },
          { stroke: ink, grid, ticks: { show: false }, font, size: 64, space: 34, values: (_, ticks) => ticks.map((one) => panel.show(one)) },
        ],
        series: [{}, ...lines.map((line) => ({
          label: line.name, stroke: color(line.color), width: 1.6, spanGaps: false, points: { show: (plot) => plot.data[0].length < 3, size: 6 },
          fill: isStacked(panel, lines) ? color(line.color) : undefined,
        }))],
        bands: [],
        hooks: { drawClear: [(plot) => shade(plot, shared)], draw: [(plot) => mark(plot, shared)], setCursor: [(plot) => read(plot, shared)] },
      };
    }

    const isStacked = (panel, lines) => panel.stacked && lines.length > 1;

    // Stacked areas are drawn from the highest one down, so that each covers the lower part of the one before.
    const drawnOrder = (panel, lines) => (isStacked(panel, lines) ? [...lines].reverse() : lines);

    function stacked(lines) {
      const total = lines[0].values.map(() => 0);
      return lines.map((line) => line.values.map((one, at) => { total[at] += one || 0; return one === null ? null : total[at]; })).reverse();
    }

    function shade(plot, shared) {
      const { ctx, bbox } = plot;
      for (const gap of shared.gaps) {
        const from = plot.valToPos(gap.from, "x", true), to = plot.valToPos(gap.to, "x", true);
        ctx.fillStyle = color("--gap");
        ctx.fillRect(Math.max(bbox.left, from), bbox.top, Math.max(3, Math.min(to, bbox.left + bbox.width) - from), bbox.height);
      }
    }

    function mark(plot, shared) {
      const { ctx, bbox } = plot, wide = window.devicePixelRatio || 1, faint = shared.marks.length > 30 ? 0.18 : 0.5;
      for (const one of shared.marks) {
        const x = Math.round(plot.valToPos(one.at, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.fillStyle = color(`--${one.category}`);
        ctx.globalAlpha = faint; ctx.fillRect(x, bbox.top, wide, bbox.height);
        ctx.globalAlpha = 1; ctx.fillRect(x - 2 * wide, bbox.top, 5 * wide, 5 * wide);
      }
    }

    function read(plot, shared) {
      const at = plot.cursor.idx ?? plot.data[0].length - 1;
      shared.values.forEach((element, line) => {
        const value = (shared.raw || [])[line]?.[at];
        say(element, value === null || value === undefined ? "–" : shared.panel.show(value));
      });
    }

    function draw(model, stage) {
      const points = spillway.model.pointsOf(model, stage);
      if (!model.about || !points.length) return;
      const kinds = PANELS.map((panel) => ({ panel, lines: panel.lines(points, model.about, stage) })).filter((one) => one.lines.length);
      const key = kinds.map((one) => one.panel.name + one.lines.map((line) => line.name).join()).join() + model.about.run + stage + document.documentElement.dataset.theme;
      if (key !== drawn) { drawn = key; build(kinds, model.about.clock); }
      const marks = marksOf(model, stage);
      kinds.forEach(({ panel, lines }, at) => {
        const shared = panels[at];
        const x = points.map((one) => one.at_s);
        const columns = isStacked(panel, lines) ? stacked(lines) : lines.map((line) => line.values);
        shared.raw = lines.map((line) => line.values);
        for (const gap of model.gaps) cut(x, columns, shared.raw, gap);
        shared.marks = marks; shared.gaps = model.gaps;
        shared.plot.setData([x, ...columns]);
        read(shared.plot, shared);
      });
      const categories = [...new Set(marks.map((one) => one.category))];
      marksPlace.replaceChildren(...categories.map((one) => {
        const swatch = make("i", "swatch");
        swatch.style.background = color(`--${one}`);
        return make("span", "series", swatch, NAMES[one] || one);
      }));
    }

    const NAMES = { spill: "spill", move: "move", plan: "new plan", scale: "slot count", cleanup: "cleanup", start: "start", failure: "given up", asked: "command" };

    // An empty point in a gap, so that no line crosses it.
    function cut(x, columns, raw, gap) {
      const at = x.findIndex((one) => one > gap.from);
      if (at <= 0) return;
      x.splice(at, 0, (gap.from + x[at]) / 2);
      new Set([...columns, ...raw]).forEach((column) => column.splice(at, 0, null));
    }

    function marksOf(model, stage) {
      const found = [];
      for (const one of model.happenings) {
        const category = spillway.model.category(one.kind);
        if (one.stage !== stage && category !== "start") continue;
        if (category === "move" && !spillway.model.ENDS.includes(one.kind)) continue;
        found.push({ at: one.at_s, category });
      }
      return found.slice(-200);
    }

    function resize() {
      for (const one of panels) {
        const width = one.figure.clientWidth;
        if (width > 100 && Math.abs(width - one.plot.width) > 1) one.plot.setSize({ width, height: HEIGHT });
      }
    }

    return { draw, resize, forget: () => { drawn = ""; } };
  }

  // A small chart of one group.
  function ofGroup(place, frames, group, clock) {
    const x = frames.map((one) => one.at);
    const data = [x, frames.map((one) => one.memory[group]), frames.map((one) => one.disk[group])];
    const ink = color("--soft"), font = "11px system-ui, sans-serif";
    const plot = new uPlot({
      width: Math.max(180, place.clientWidth), height: 110, legend: { show: false }, cursor: { show: false }, padding: [6, 18, 0, 0],
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high || 1] } },
      axes: [{ stroke: ink, font, size: 24, grid: { show: false }, values: (_, ticks) => ticks.map((at) => moment(at, clock)) },
        { stroke: ink, font, size: 60, grid: { stroke: color("--line"), width: 1 }, values: (_, ticks) => ticks.map(bytes) }],
      series: [{}, { stroke: color("--line-1"), width: 1.6, points: { show: frames.length < 3 } }, { stroke: color("--spill"), width: 1.6, points: { show: false } }],
    }, data, place);
    plot.root.setAttribute("aria-hidden", "true");
    return plot;
  }

  return { create, ofGroup };
})();
