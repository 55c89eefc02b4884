"""The values that settings of a query can have by name."""

from __future__ import annotations

#: Which groups leave memory first; see spillway/policies/local/controller.py.
VICTIMS = ("least-productive", "most-productive", "largest", "random", "inactive")

#: How groups live on disk; see spillway/slot/keeper.py and spillway/slot/rotation.py.
SPILL_MODES = ("generations", "rotation")

#: The value of `memory` for no limit.
UNLIMITED = "unlimited"

#: How slots share memory; see spillway/policies/cluster/strategy.py.
STRATEGIES = (
    *("none", "spill-only", "relocate-only", "lazy-disk", "active-disk", "global-disk"),
    *("flux-load", "flux-memory", "flux-hybrid"),
)

#: How a join without equal keys uses the slots; see spillway/spark/api/matching.py.
DISTRIBUTIONS = ("psp", "atr", "ctr")

#: How such a join changes its slot count; see spillway/coordinator/decisions/smoothing.py.
AGGRESSIVE, PASSIVE = "aggressive", "passive"

#: How groups move; see spillway/policies/cluster/protocols.py.
MSLB, PTLB = "mslb", "ptlb"

#: The query finds the value while it runs, see spillway/policies/cluster/tuning.py, or when it first
#: starts, see spillway/spark/api/start/distribution.py.
AUTO = "auto"
MOVES = (MSLB, PTLB, AUTO)
ADJUSTMENTS = (AGGRESSIVE, PASSIVE, AUTO)
#: Who decides how many slots there are; see spillway/policies/ring/length.py.
FIXED = "fixed"
RINGS = (FIXED, AUTO)
