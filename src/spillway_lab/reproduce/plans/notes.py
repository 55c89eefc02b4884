"""Why claims of PLANS do not hold in the simulation, from a look at the data."""

from __future__ import annotations

_BOUNDED = (
    "The possible gain is bounded: the other three slots, with 37.5 % of the groups, keep up in None as "
    "well, so no adaptation can give more than all results that are due. Before second 30 the streams "
    "are alike and every shape costs the same; a slot processes its rows in order, so local "
    "optimisation saves nothing until it is through them. After that it saves at most a factor of 2.7 "
    "in this cost model, where lookups and results cost the same in every shape and only stored "
    "combinations do not. Slots half as fast are not through those rows at the end of the run; with "
    "slots twice as fast None is not behind at its end. "
)

PLANS_NOTES: dict[str, str] = {
    "plans-7": _BOUNDED
    + "A parallel track does not relieve its sender before it ends, which takes two windows and the "
    "sender's backlog: in this run none has ended. It gives only results of new rows, and there are few "
    "of these once B and C are slow.",
    "plans-7-mslb": _BOUNDED
    + "A sender with a backlog processes the waiting rows of the groups before it sends them, so moves "
    "help late.",
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
        "MSLB takes much less in every case, and PTLB takes two windows where slots keep up. Here the "
        "sender is the bottleneck that load balancing must relieve: it needs longer than two windows "
        "for the rows of two windows, and the more so the larger they are. With 60 s no track ends "
        "within the run; the figure then shows the length of the run."
    ),
    "plans-13": (
        "PTLB is ahead in the end, but by little, and behind until about second 165. Its track does not "
        "end within the run, so it changes little, while MSLB is ahead at first. The cost of moving "
        "state decides, as the paper says: it does not give the cost of a tuple at either end, and the "
        "higher that cost, the further PTLB is ahead."
    ),
}
