"""DCAPE section 3 and DCAPE-TR section 4: which groups spill, and how much at a time.

A minute is a batch. The papers' limit of 200 MB was for Java objects of unknown size; here it is a
stated fraction of the state of the whole input.
"""

from __future__ import annotations

from spillway_lab.reproduce.terms import (
    ALL_MEMORY,
    GROUPS,
    MINUTES,
    ROWS_PER_MINUTE,
    Feed,
    Figure,
    Variant,
)
from spillway_lab.workloads.dcape import Dcape

#: Figure 7: least-productive has at least this many times the output of most-productive, and this many
#: times fewer rows of cleanup; below the paper's 1.7 and 5.1.
OUTPUT_RATIO, CLEANUP_RATIO = 1.5, 4.0
#: What still counts as not worse.
NOT_WORSE = 0.98

LESS, MORE = "push-less-productive", "push-more-productive"


def _feed(*join_rates: float) -> Feed:
    """The streams of DCAPE 3.2 with these join rates."""
    return Feed(Dcape(3, ROWS_PER_MINUTE, tuple_range=30_000, join_rates=join_rates, groups=GROUPS))


def _pushing(name: str, victims: str, fraction: float = 0.3) -> Variant:
    return Variant(name, {"victims": victims, "spill_fraction": fraction}, limited=True)


_ALL = Variant(ALL_MEMORY)
_PUSHES = tuple(_pushing(f"{k}%-push", "random", k / 100) for k in (10, 30, 50, 100))
_ENDS = (_pushing(LESS, "least-productive"), _pushing(MORE, "most-productive"))

SPILL_FIGURES = (
    Figure(
        "dcape-5",
        "DCAPE, figure 5: k % of memory pushed at a time, output",
        "The more state is pushed at a time, the less is produced at run time; All-Mem is on top.",
        'no number; "the more states are being pushed into the disk each time, the smaller the '
        'overall throughput"',
        _feed(3),
        (_ALL, *_PUSHES),
    ),
    Figure(
        "dcape-6",
        "DCAPE, figure 6: k % of memory pushed at a time, memory",
        "Memory stays under its limit, exceeding it by at most one batch of input; "
        "the more is pushed at a time, the fewer pushes there are.",
        'no number but the limit, 200 MB; "the more states (a higher percentage) we push in each '
        'adaptation, the fewer times we need to trigger the state-spill process"',
        _feed(3),
        (_ALL, *_PUSHES),
        "memory",
    ),
    Figure(
        "dcape-7",
        "DCAPE, figure 7: which groups are pushed, join rates 4, 2 and 1",
        f"After {MINUTES} minutes, pushing the less productive groups gives at least "
        f"{OUTPUT_RATIO:g} x the output of pushing the more productive ones, and leaves at least "
        f"{CLEANUP_RATIO:g} x fewer rows to cleanup.",
        "about 1.7 x the output; 194,308 rows of cleanup against 992,893, 5.1 x fewer",
        _feed(4, 2, 1),
        (_ALL, *_ENDS),
        other_parts=(0.3, 0.5, 0.7),
    ),
    Figure(
        "dcape-tr-12",
        "DCAPE-TR, figure 12: which groups are pushed, equal join rates",
        "With equal join rates, pushing the less productive groups is still not worse "
        f"(at least {NOT_WORSE:g} x the output).",
        'no number; pushing the less productive "still slightly outperforms" the other',
        _feed(3),
        (_ALL, *_ENDS),
    ),
)
