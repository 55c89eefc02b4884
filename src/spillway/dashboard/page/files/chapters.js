// What the words on the page mean, and the section of the paper that describes each mechanism.
"use strict";

spillway.chapters = (() => {
  const { make, set } = spillway.text;
  const PAPERS = {
    "DCAPE": "Liu, Rundensteiner et al.: run-time operator state adaptation, spill and relocation",
    "DCAPE-TR": "Liu and Rundensteiner: Adapting State-Intensive Non-Blocking Queries over Distributed Environments (report, 2005)",
    "PLANS": "Zhu and Rundensteiner: Adapting Partitioned Continuous Query Processing in Distributed Systems",
    "FLUX": "Shah, Hellerstein, Chandrasekaran and Franklin: Flux, An Adaptive Partitioning Operator for Continuous Query Systems (2002)",
    "PSP": "Wang and Rundensteiner: Scalable Stream Join Processing with Expensive Predicates (pipelined state partitioning)",
  };
  const CHAPTERS = {
    groups: { title: "Slots and groups", papers: ["DCAPE-TR 4.1", "FLUX 3"], text: "A slot is one parallel worker of the query with its own memory. The keys are cut into groups; each group, with all its rows, is in one slot. The map has one row per slot and one square per group. Productivity is the number of results of a group per byte that it has in memory; load is the rows that it takes and gives in a batch." },
    spill: { title: "Spill", papers: ["DCAPE 3", "DCAPE-TR 4.3"], text: "A slot at its memory limit writes whole groups to its disk, the least productive ones first. Hatched squares are on disk. New rows of such a group start again in memory; results between old and new rows come later, exactly once." },
    forced: { title: "Forced spill", papers: ["DCAPE 5.3"], text: "The coordinator orders a slot with unproductive groups to spill, so that productive groups of other slots can have its memory." },
    cleanup: { title: "Cleanup", papers: ["DCAPE-TR 4.2"], text: "The slot makes the results that are missing between the parts of a group: at the end of the input, on request, before a part expires, or when memory has room again." },
    relocation: { title: "Move with state", papers: ["DCAPE-TR 5.1", "PLANS 4.2"], text: "Groups go from a full or busy slot to another in eight steps, while the stream runs. Their new rows wait at the receiver until the state is there; all other groups go on." },
    track: { title: "Parallel track", papers: ["PLANS 3.2"], text: "Groups move without their state: both slots get the new rows until the old ones have left the window. Five steps." },
    plan: { title: "New plan of a slot", papers: ["PLANS 1.2", "PLANS 5.2"], text: "A slot changes the order in which it joins the streams, and which combinations it stores, because a measured plan is cheaper. It fills the missing states a part per batch; the stream does not stop." },
    scale: { title: "Slot count", papers: ["FLUX 5", "PSP 6"], text: "The query gets more slots, or fewer. New slots start empty and get groups; retiring ones give all groups away first. A join without equal keys can also route only coming time slices." },
    balance: { title: "Load balance", papers: ["FLUX 5.3"], text: "FLUX moves one group at a time from the busiest slot to the idlest one, if their utilisation differs by more than a threshold." },
    skew: { title: "Rows that wait", papers: ["FLUX 4", "FLUX 6.1"], text: "A slow slot buffers rows for a later batch, so that the others do not wait for it; with rotation, groups on disk wait for their turn in memory." },
    ring: { title: "Ring of time slices", papers: ["PSP 4.1", "PSP 5.5"], text: "A join without equal keys cuts its state into slices of time and spreads them over the slots. Every new row visits all of them." },
    watermark: { title: "Watermark", papers: [], text: "Rows before the watermark are late: they are dropped and counted. The stream that is furthest behind holds it." },
    start: { title: "Start, restart, owner", papers: [], text: "A start takes the checkpoint over with the next epoch and continues after the last committed batch. An older start that wakes up cannot commit any more. A grey gap in the charts is the time between two starts." },
    asked: { title: "Command", papers: [], text: "Somebody with the token gave a command on this page." },
  };
  const KINDS = {
    spilled: ["Spill", "spill"], "force-spilled": ["Forced spill", "forced"], "cleaned-up": ["Cleanup", "cleanup"],
    reloaded: ["Back in memory", "cleanup"], scaled: ["Slot count changed", "scale"], reshaped: ["New plan", "plan"],
    started: ["Start", "start"], stopped: ["End", "start"], asked: ["Command", "asked"],
    "sending-failed": ["Sending failed", "relocation"], "move-rolled-back": ["Move given up", "relocation"],
    "track-given-up": ["Track given up", "track"], "duplication-asked": ["Parallel track", "track"],
    "old-purged": ["Parallel track", "track"], "groups-deleted": ["Parallel track ended", "track"],
  };
  // The steps of both protocols, in order, with what happens in each.
  const STEPS = {
    "move-asked": "the coordinator decides", "groups-chosen": "the sender chooses groups",
    "deactivation-asked": "rows of the groups shall wait", "groups-deactivated": "they wait",
    "sending-asked": "the state shall go", "groups-sent": "first bytes arrive",
    "groups-received": "last bytes arrive", "groups-reactivated": "the receiver serves the groups",
    "duplication-asked": "both slots get new rows", "old-purged": "the old rows are gone",
    "groups-deleted": "the sender drops the groups",
  };
  const RELOCATION = ["move-asked", "groups-chosen", "deactivation-asked", "groups-deactivated", "sending-asked", "groups-sent", "groups-received", "groups-reactivated"];
  const TRACK = ["move-asked", "groups-chosen", "duplication-asked", "old-purged", "groups-deleted"];

  const named = (kind) => (KINDS[kind] || ["Move", "relocation"])[0];
  const chapterOf = (kind) => (KINDS[kind] || ["Move", "relocation"])[1];

  // A link to the chapter, with the paper's section as its text.
  function link(name) {
    const chapter = CHAPTERS[name];
    return set(make("a", "paper", chapter.papers[0] || chapter.title), { href: `#chapter-${name}` });
  }

  function fill(place) {
    for (const [name, chapter] of Object.entries(CHAPTERS)) {
      const papers = chapter.papers.map((one) => one.replace(" ", ", section ")).join("; ");
      place.append(set(make("article", "", make("h3", "", chapter.title), make("p", "", chapter.text),
        papers ? make("p", "papers", papers) : null), { id: `chapter-${name}`, tabindex: "-1" }));
    }
    const cited = Object.entries(PAPERS).map(([name, title]) => make("li", "", `${name}: ${title}`));
    place.append(make("article", "", make("h3", "", "The papers"), make("ul", "papers", ...cited)));
  }

  return { named, chapterOf, link, fill, STEPS, RELOCATION, TRACK };
})();
