"""DCAPE section 4 and 5.2, DCAPE-TR section 5.2: state that moves between slots.

The alternating workload is the papers' worst case: half of the groups gets ten rows for each row of
the other half, and the halves, at first one on each slot, swap. The first phase is half as long as
the others, so the run starts in the middle of a phase.
"""

from __future__ import annotations

from spillway_lab.reproduce.terms import (
    ALL_MEMORY,
    GROUPS,
    ROWS_PER_MINUTE,
    Feed,
    Figure,
    Variant,
    tau,
)
from spillway_lab.workloads.dcape import Dcape

#: Figures 9 and 15 hold if outputs differ by at most this.
SAME_OUTPUT = 0.05
#: Figure 10: the mean of M_least/M_max, at least this with relocation, less without.
BALANCED = 0.8
#: Figure 12: the cleanup of the slot with most of it is shorter by at least this factor.
CLEANUP_TIMES = 3.0

#: Batches of 15 seconds, which divide tau_m; and of 3, so that a relocation of four or five batches ends
#: before the shortest tau_m does.
PER_MINUTE, FINE_PER_MINUTE = 4, 20
#: A batch has a fixed cost however few rows it has, so runs of short batches are short.
UNEVEN_MINUTES, FINE_MINUTES = 30, 12

TOP, BOTTOM = "theta 90%", "theta 50%"
WITH, WITHOUT = "with-relocation", "no-relocation"
LAZY = "lazy-disk"


def _alternating(minutes: int, per_minute: int, phase_minutes: int) -> Feed:
    phase = phase_minutes * per_minute
    workload = Dcape(
        rows=ROWS_PER_MINUTE // per_minute,
        join_rates=(3,),
        groups=GROUPS,
        skew=10,
        skew_batches=phase,
    )
    return Feed(workload, minutes, per_minute, first=phase // 2)


def _plain(scale: int = 1) -> Feed:
    """Join rate 3, tuple range 30,000; a scale multiplies values and rows."""
    workload = Dcape(
        rows=scale * ROWS_PER_MINUTE // PER_MINUTE,
        tuple_range=scale * 30_000,
        join_rates=(3,),
        groups=GROUPS,
    )
    return Feed(workload, UNEVEN_MINUTES, PER_MINUTE)


def _moving(name: str, theta: float, seconds: int = 45, per_minute: int = PER_MINUTE) -> Variant:
    return Variant(
        name,
        {
            "slots": 2,
            "strategy": "relocate-only",
            "relocation_threshold": theta,
            "relocation_batches": tau(seconds, per_minute),
        },
    )


def _uneven(name: str, strategy: str, *shares: float) -> Variant:
    return Variant(
        name,
        {
            "slots": len(shares),
            "shares": shares,
            "strategy": strategy,
            "relocation_threshold": 0.8,
            "relocation_batches": tau(45, PER_MINUTE),
        },
        limited=True,
    )


_ALL_MEMORY = Variant(ALL_MEMORY, {"slots": 2, "strategy": "none"})
_ALTERNATING = _alternating(40, PER_MINUTE, phase_minutes=10)
_ALTERNATING_SETUP = (
    "Two slots, no memory limit. Half of the groups gets 10 rows for each row of the other; the halves, "
    "at first one on each slot, swap after {first:g} minutes and then every {phase}. A batch is {batch} "
    "seconds."
)
_BY_10 = _ALTERNATING_SETUP.format(first=5, phase=10, batch=15)

RELOCATION_FIGURES = (
    Figure(
        "dcape-9",
        "DCAPE, figure 9 (DCAPE-TR, figure 14): the threshold theta_r, output",
        f"With every theta_r the output at run time is within {SAME_OUTPUT:.0%} of All-Mem's; "
        "there are more relocations with theta_r = 90% than with 50%.",
        'output "almost the same" and similar to All-Mem\'s; 24 relocations with 90%, 2 with 50%, '
        "in 60 minutes",
        _ALTERNATING,
        (_ALL_MEMORY, *(_moving(f"theta {t}%", t / 100) for t in (50, 60, 70, 80, 90))),
        memory_part=None,
        setup=f"{_BY_10} The query compares slots every 45 seconds (tau_m). In virtual time a "
        "relocation delays only the rows that wait for it; its other costs are in the processing time.",
    ),
    Figure(
        "dcape-10",
        "DCAPE, figure 10: memory of the slots, with and without relocation",
        "From the end of the first relocation on, M_least/M_max is on average at least "
        f"{BALANCED:g} with relocation, and less than that without.",
        'no number; "the main memory usage remains largely balanced due to the relocation"',
        _ALTERNATING,
        (Variant(WITHOUT, _ALL_MEMORY.adapt), _moving(WITH, 0.9)),
        "slots",
        memory_part=None,
        setup=f"{_BY_10} theta_r is 90%, tau_m 45 seconds. These are two of the runs of dcape-9. "
        "Without relocation the slots even out by themselves in the long run, because the halves swap; "
        "the worst moments tell the runs apart better than the means.",
    ),
    Figure(
        "dcape-11",
        "DCAPE, figure 11 (DCAPE-TR, figure 17): relocation against spilling",
        "Where the slots together have enough memory, there is more output at run time with "
        "relocation than without, and there are fewer spills or none.",
        "no number; without relocation the output drops after 40 minutes, with it all states stay "
        "in memory",
        _plain(),
        (_uneven(WITH, LAZY, 3, 1, 1), _uneven(WITHOUT, "spill-only", 3, 1, 1)),
        memory_part=0.45,
        setup="Three slots: the first starts with 60% of the groups, the others with 20% each; "
        "theta_r is 80%, tau_m 45 seconds, a batch 15 seconds, a run 30 minutes. The limit is that of "
        "each slot.",
    ),
    Figure(
        "dcape-12",
        "DCAPE, figure 12 (DCAPE-TR, figure 20): lazy-disk against no relocation",
        "Where the slots together have too little memory, lazy-disk gives more output at run time "
        "than no relocation, and the cleanup of the slot with most of it is at least "
        f"{CLEANUP_TIMES:g} x shorter.",
        "higher output in the figure; after another run, of 6 hours, more than 1600 seconds of "
        "cleanup against less than 400",
        _plain(scale=10),
        (_uneven(LAZY, LAZY, 4, 1, 1), _uneven(WITHOUT, "spill-only", 4, 1, 1)),
        memory_part=0.2,
        other_parts=(0.25,),
        setup="Three slots: the first starts with 2/3 of the groups, the others with 1/6 each; "
        "theta_r is 80%, tau_m 45 seconds, a batch 15 seconds, a run 30 minutes. The limit is that of "
        "each slot, so one is short of memory without relocation. There are 10 times as many rows and "
        "join values as elsewhere, so that cleanup takes a measurable time: the seconds at work of the "
        "slot with most of them.",
    ),
    Figure(
        "dcape-tr-15",
        "DCAPE-TR, figure 15: the least time tau_m between relocations",
        "The longer tau_m is, the fewer relocations there are or as many, and fewer with 45 seconds "
        f"than with 15; the outputs are within {SAME_OUTPUT:.0%} of each other.",
        '31 relocations with 15 seconds, 27 with 30, 24 with 45; output "does not change too much"',
        _alternating(FINE_MINUTES, FINE_PER_MINUTE, phase_minutes=3),
        tuple(
            _moving(f"every {seconds} s", 0.9, seconds, FINE_PER_MINUTE) for seconds in (15, 30, 45)
        ),
        memory_part=None,
        setup=_ALTERNATING_SETUP.format(first=1.5, phase=3, batch=3)
        + f" A run is {FINE_MINUTES} minutes. Alternation and length are 0.3 of those of dcape-9, "
        "because batches must be short for a relocation, which takes four or five of them, to end "
        "within 15 seconds. theta_r is 90%.",
    ),
)
