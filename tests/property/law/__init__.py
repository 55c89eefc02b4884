"""The law of the project, without Spark: the product's coordinator, slots, protocols and checkpoint.

stages     the stages of spillway/testing/simulated, and what they gave
cluster    a query of one or more stages: batches, rounds, crashes, starts
"""

from law.cluster import Cluster
from law.stages import Held, SlicedHeld
from spillway.testing.simulated.host import Crash
from spillway.testing.simulated.rows import GROUPS, Row, Subject

__all__ = ["GROUPS", "Cluster", "Crash", "Held", "Row", "SlicedHeld", "Subject"]
