"""What is reproduced: the figures of the papers, their claims, and the runs that each is made of.

Time is virtual. The papers' streams have a tuple every 30 ms, so 2000 rows of each stream are a
minute, and a minute is a batch. The papers' limit of 200 MB was for Java objects of unknown size; here
it is a stated part of what the same run holds at its end when nothing leaves memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.workloads.dcape import Dcape

MINUTES = 40
ROWS_PER_MINUTE = 2000
#: Divisible by 3, so that the three classes of figure 7 have as many groups each.
GROUPS = 120
#: The limit of memory, as a part of the state that All-Mem has at the end.
MEMORY_PART = 0.4
#: Least-productive has at least so many times the output of most-productive, and so many times fewer
#: rows of cleanup: what is asked of figure 7, below the paper's 1.7 and 5.1.
OUTPUT_RATIO, CLEANUP_RATIO = 1.5, 4.0
#: What still counts as not worse.
NOT_WORSE = 0.98

ALL_MEMORY = "All-Mem"
LESS, MORE = "push-less-productive", "push-more-productive"


@dataclass(frozen=True)
class Variant:
    """One line of a figure: how groups are chosen, and how much of memory goes at a time."""

    name: str
    #: None: nothing leaves memory.
    victims: str | None = None
    spill_fraction: float = 0.3


@dataclass(frozen=True)
class Figure:
    """One figure of a paper."""

    name: str
    title: str
    claim: str
    #: What the paper reports, in its own numbers or words.
    paper: str
    join_rates: tuple[float, ...]
    variants: tuple[Variant, ...]
    #: What a line shows: "output" rows so far, or "memory" bytes.
    shows: str = "output"
    #: Other limits, as parts of All-Mem's state, under which the ratios are measured too.
    other_parts: tuple[float, ...] = ()

    @property
    def workload(self) -> Dcape:
        """The streams of the figure."""
        return workload(self.join_rates)


def workload(join_rates: tuple[float, ...]) -> Dcape:
    """The streams of DCAPE 3.2 with these join rates."""
    return Dcape(3, ROWS_PER_MINUTE, tuple_range=30_000, join_rates=join_rates, groups=GROUPS)


_ALL = Variant(ALL_MEMORY)
_PUSHES = tuple(Variant(f"{k}%-push", "random", k / 100) for k in (10, 30, 50, 100))
_ENDS = (Variant(LESS, "least-productive"), Variant(MORE, "most-productive"))

FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "dcape-5",
            "DCAPE, figure 5: k % of memory pushed at a time, output",
            "The more state is pushed at a time, the less is produced at run time; "
            "All-Mem is on top.",
            'no number; "the more states are being pushed into the disk each time, the smaller the '
            'overall throughput"',
            (3,),
            (_ALL, *_PUSHES),
        ),
        Figure(
            "dcape-6",
            "DCAPE, figure 6: k % of memory pushed at a time, memory",
            "Memory stays under its limit, exceeding it by at most one batch of input; "
            "the more is pushed at a time, the fewer pushes there are.",
            'no number but the limit, 200 MB; "the more states (a higher percentage) we push in each '
            'adaptation, the fewer times we need to trigger the state-spill process"',
            (3,),
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
            (4, 2, 1),
            (_ALL, *_ENDS),
            other_parts=(0.3, 0.5, 0.7),
        ),
        Figure(
            "dcape-tr-12",
            "DCAPE-TR, figure 12: which groups are pushed, equal join rates",
            "With equal join rates, pushing the less productive groups is still not worse "
            f"(at least {NOT_WORSE:g} x the output).",
            'no number; pushing the less productive "still slightly outperforms" the other',
            (3,),
            (_ALL, *_ENDS),
        ),
    )
}
