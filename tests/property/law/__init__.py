"""The law of the project, without Spark: the product's coordinator, slots, protocols and checkpoint.

rows       rows, and what an operator under a law is
told       policies that decide what a history tells them
host       the coordinator's host: a real checkpoint, and state that travels when told to
stages     slots that run the product's slot code, and what they gave
cluster    a query of one or more stages: batches, rounds, crashes, starts
"""

from law.cluster import Cluster
from law.host import ATTEMPTS, Crash
from law.rows import GROUPS, Row, Subject
from law.stages import Held, Results

__all__ = ["ATTEMPTS", "GROUPS", "Cluster", "Crash", "Held", "Results", "Row", "Subject"]
