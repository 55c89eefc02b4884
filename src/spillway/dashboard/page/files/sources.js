// Where messages come from: the server, or a recording in the page.
"use strict";

spillway.sources = (() => {
  const { say, moment } = spillway.text;

  // The browser connects again by itself; every connection begins with a whole message.
  function live(take, lost) {
    const events = new EventSource("/feed");
    events.onmessage = (event) => take(JSON.parse(event.data));
    events.onerror = () => {
      lost();
      // After a refusal the browser gives up, so the page tries again.
      if (events.readyState === EventSource.CLOSED) { events.close(); setTimeout(() => live(take, lost), 2000); }
    };
  }

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // Plays messages at their own times; seeking adds them up from the beginning.
  async function recorded(element, take, restart) {
    const messages = await unpacked(element.textContent.trim());
    const $ = (id) => document.getElementById(id);
    const first = messages[0].now_s, last = messages[messages.length - 1].now_s;
    const clock = messages[0].about.clock;
    let next = 0, at = first, playing = true, before = performance.now();
    $("player").hidden = false;

    function show() {
      $("seek").value = Math.round(((at - first) / Math.max(1e-9, last - first)) * 1000);
      $("seek").setAttribute("aria-valuetext", moment(at, clock));
      say($("played"), `${moment(at, clock)} of ${moment(last, clock)}`);
      say($("play"), playing ? "Pause" : "Play");
    }
    function until(time) {
      while (next < messages.length && messages[next].now_s <= time) { take(messages[next]); next += 1; }
    }
    function seek(time) {
      at = time;
      if (next > 0 && messages[next - 1].now_s > time) { restart(); next = 0; }
      until(time);
      show();
    }
    $("play").addEventListener("click", () => { if (at >= last) seek(first); playing = !playing || at >= last; show(); });
    $("seek").addEventListener("input", () => seek(first + (Number($("seek").value) / 1000) * (last - first)));
    setInterval(() => {
      const now = performance.now(), passed = ((now - before) / 1000) * Number($("speed").value);
      before = now;
      if (!playing) return;
      at = Math.min(last, at + passed);
      until(at);
      if (at >= last) playing = false;
      show();
    }, 100);
    until(first);
    show();
    spillway.seek = seek;
  }

  return { live, recorded };
})();
