// Numbers and texts for people. Text from the query reaches the page only through `textContent`.
"use strict";
const spillway = {};

spillway.text = (() => {
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const short = (value, digits) => value.toLocaleString("en-US", { maximumFractionDigits: digits });

  function scaled(value, step, units, unit) {
    let at = 0;
    while (Math.abs(value) >= step * 0.9995 && at < units.length - 1) { value /= step; at += 1; }
    const digits = Math.abs(value) >= 99.5 || at === 0 ? 0 : Math.abs(value) >= 9.95 ? 1 : 2;
    return `${short(value, digits)}${units[at]}${unit}`;
  }

  const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
  const bytes = (value) => (value === null || value === undefined ? "–"
    : scaled(value, 1024, [" B", " kB", " MB", " GB", " TB"], ""));
  const rate = (value) => (Math.abs(value) < 1000 ? short(value, value < 10 ? 1 : 0)
    : scaled(value, 1000, ["", " k", " M", " G"], ""));
  const percent = (part) => `${short(part * 100, 0)} %`;

  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0 s";
    if (value < 0.001) return `${short(value * 1e6, 0)} µs`;
    if (value < 1) return `${short(value * 1e3, value < 0.01 ? 1 : 0)} ms`;
    if (value < 60) return `${short(value, value < 10 ? 2 : 1)} s`;
    const minutes = Math.floor(value / 60);
    if (minutes < 60) return `${minutes} min ${short(value - 60 * minutes, 0)} s`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  const two = (value) => String(value).padStart(2, "0");
  function moment(at, clock) {
    if (clock === "wall") {
      const then = new Date(at * 1000);
      return `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
    }
    const rest = at - 60 * Math.floor(at / 60);
    return `${Math.floor(at / 60)}:${two(Math.floor(rest))}${rest % 1 ? `.${Math.floor((rest % 1) * 10)}` : ""}`;
  }

  const plural = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

  // An element with classes and children; strings become text, never markup.
  function make(name, classes, ...children) {
    const [tag, space] = name.startsWith("svg:") ? [name.slice(4), true] : [name, false];
    const made = space ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    if (classes) made.setAttribute("class", classes);
    made.append(...children.filter((one) => one !== null && one !== undefined));
    return made;
  }

  function set(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Repeated updates with the same text do not touch the document.
  function say(element, text) { if (element.textContent !== text) element.textContent = text; }

  return { count, bytes, rate, percent, seconds, moment, plural, make, set, color, say };
})();
