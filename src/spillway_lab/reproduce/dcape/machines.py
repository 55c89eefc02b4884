"""DCAPE-TR section 3.5: the same query on one to five machines, which are slots here."""

from __future__ import annotations

from spillway_lab.reproduce.terms import GROUPS, Feed, Figure, Variant
from spillway_lab.workloads.dcape import Dcape

#: Figure 6 holds if outputs differ by at most this, and five slots take at most this many times the
#: processing time of one.
SAME_OUTPUT, PROCESSING_TIMES = 0.01, 2.0
#: The machine of figure 7 runs out of memory after 25 of 40 minutes.
_LIMIT = 25 / 40


def _feed(tuple_ms: int, join_rate: int) -> Feed:
    """A tuple every `tuple_ms` milliseconds; a minute is a batch."""
    rows = 60_000 // tuple_ms
    return Feed(Dcape(rows=rows, tuple_range=50_000, join_rates=(join_rate,), groups=GROUPS))


_MACHINES = tuple(Variant(f"M{n}", {"slots": n, "strategy": "none"}) for n in range(1, 6))

MACHINES_FIGURES = (
    Figure(
        "dcape-tr-6",
        "DCAPE-TR, figure 6: a small query on 1 to 5 slots",
        f"Over time the outputs are within {SAME_OUTPUT:.0%} of each other, and five slots need at "
        f"most {PROCESSING_TIMES:g} x the processing time of one.",
        'no number; "negligible effects on the overall throughput"; M5 has "a slight drop"',
        _feed(20, 1),
        _MACHINES,
        memory_part=None,
        setup="A tuple every 20 ms, so 3000 rows of each stream are a minute and a batch; tuple range "
        "50,000, join rate 1, no memory limit. All slots share the cores of one machine, so the "
        "processing time, a sum over the batches, shows what more slots cost and not what they would "
        "gain; it does not depend on virtual time.",
    ),
    Figure(
        "dcape-tr-7",
        "DCAPE-TR, figure 7: a large query on 1 to 5 slots, memory of the fullest",
        "The more slots, the later one is full or none is: M1 is the first, M2 comes later or never, "
        "M4 and M5 never have a full slot, and these two have the same output.",
        "M1 ends after about 25 of 40 minutes, M2 after about 35; M4 and M5 run to the end with "
        "almost the same output",
        _feed(10, 2),
        _MACHINES,
        "fullest",
        memory_part=_LIMIT,
        setup="A tuple every 10 ms, so 6000 rows of each stream are a minute and a batch; tuple range "
        "50,000, join rate 2. The paper's engine dies when its 200 MB are full. Here nothing is "
        "limited; the figure notes when the fullest slot first exceeds 25/40 of the state of the whole "
        "input: that puts the end of M1 where the paper has it. The paper's M2 is full too, after 35 "
        "minutes; here each of its slots has half of the state, which is below the limit.",
    ),
)
