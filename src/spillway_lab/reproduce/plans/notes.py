"""Why claims of PLANS do not hold in the simulation, found by looking at the data."""

from __future__ import annotations

_BOUNDED = (
    "What there is to gain is bounded: the other three slots, with 37.5 % of the groups, keep "
    "up in None as well, so that no adaptation can give more than all results that are due. "
    "Before second 30 the streams are alike and every shape costs the same; a slot processes "
    "its rows in order, so local optimisation saves nothing until it is through them. After "
    "that it saves at most a factor of 2.7 in this cost model, where lookups and results cost "
    "the same in every shape and only stored combinations do not. Slots that are half as fast "
    "are not through those rows at the end of the run; with slots that are twice as fast None "
    "is not behind at its end. "
)

#: By figure.
PLANS_NOTES: dict[str, str] = {
    "plans-7": _BOUNDED
    + "A parallel track does not relieve its sender before it ends, which takes two windows and "
    "what the sender is behind: in this run none has ended. What it gives are results of new "
    "rows alone, of which there are few once B and C are slow.",
    "plans-7-mslb": _BOUNDED
    + "A sender that is behind processes what waits for the groups before it sends them, so that "
    "moves begin to help late.",
    "plans-8": (
        "Local optimisation lowers the number of tuples with and without load balancing, as in the "
        "paper. But while groups are on two tracks their new rows are in two slots, and no track "
        "has ended in this run: both together have more tuples than local optimisation alone."
    ),
    "plans-real": (
        "Both together give the most results with either protocol, and with MSLB there are fewest "
        "tuples in the system too. With PTLB there are not: until the rows from before the move have "
        "left the window, both slots have the new rows of the groups on the track. For the same reason "
        "a track gives little by itself here: a sender that needs more than two seconds for one of the "
        "streams takes longer than the run until it is relieved."
    ),
    "plans-11": (
        "At this rate the window makes less difference, as in the paper: with 45 and 60 s all four "
        "slots together have too little for the load, so that no way of sharing it helps much. MSLB "
        "leads most with 30 s."
    ),
    "plans-12": (
        "MSLB takes much less in every case, and PTLB takes two windows where slots keep up. Here "
        "the sender is the bottleneck that load balancing is for: it is longer than two windows at "
        "the rows of two windows, the more the larger they are. With 60 s no track ends within the "
        "run, whose length is shown then."
    ),
    "plans-13": (
        "PTLB is ahead in the end, but by little, and behind until about second 165. Its track does "
        "not end within the run, so that it changes little, while MSLB is ahead at first. How dear "
        "it is to move state decides, as the paper says: what a tuple costs at either end is not "
        "given there, and the dearer it is the more PTLB is ahead."
    ),
}
