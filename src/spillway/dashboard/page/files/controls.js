// Commands, for those who have the token. It comes in the address after #, and stays in this page's memory.
"use strict";

spillway.controls = (() => {
  const { make, set, say } = spillway.text;
  let token = null;

  function takeToken() {
    const found = new URLSearchParams(location.hash.slice(1)).get("token");
    if (!found) return;
    token = found;
    // The address bar, the history and screenshots do not show it.
    history.replaceState(null, "", location.pathname + location.search);
  }

  function field(label, input) {
    const id = `field-${label.replace(/\W+/g, "-")}`;
    set(input, { id });
    return make("span", "field", set(make("label", "", label), { for: id }), input);
  }

  const FORMS = {
    cleanup: () => ({ name: "Cleanup now", fields: [], body: () => ({}) }),
    scale: (now) => { const slots = set(make("input"), { type: "number", min: 1, max: 65536, value: now, required: "" }); return { name: "Change slot count", fields: [field("Slots", slots)], body: () => ({ slots: Number(slots.value) }) }; },
    memory: () => {
      const size = set(make("input"), { type: "text", placeholder: "200MB", required: "", size: 8 }), slot = set(make("input"), { type: "number", min: 0, placeholder: "all" });
      return { name: "Limit memory", fields: [field("Memory", size), field("Slot", slot)], body: () => ({ bytes: size.value, slot: slot.value === "" ? null : Number(slot.value) }) };
    },
    pause: () => { const paused = set(make("input"), { type: "checkbox", checked: "" }); return { name: "Pause adaptation", fields: [field("Paused", paused)], body: () => ({ paused: paused.checked }) }; },
  };

  async function send(name, body, answer) {
    say(answer, "…");
    try {
      const reply = await fetch(`/control/${name}`, { method: "POST", headers: { "Authorization": `Bearer ${token}`, "Content-Type": "application/json" }, body: JSON.stringify(body) });
      const said = await reply.json();
      say(answer, said.said);
      answer.dataset.ok = String(said.ok);
    } catch (problem) { say(answer, `not sent: ${problem.message}`); answer.dataset.ok = "false"; }
  }

  function fill(section, place, answer, names, slots) {
    section.hidden = !token || !names.length;
    if (section.hidden || place.childElementCount) return;
    for (const name of names) {
      if (!FORMS[name]) continue;
      const form = FORMS[name](slots), element = make("form", "command", ...form.fields, set(make("button", "", form.name), { type: "submit" }));
      element.addEventListener("submit", (event) => { event.preventDefault(); send(name, form.body(), answer); });
      place.append(element);
    }
  }

  return { takeToken, fill };
})();
