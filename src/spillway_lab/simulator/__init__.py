"""A simulated cluster in virtual time, under the same coordinator, policies and protocols as a query."""

from spillway_lab.simulator.cluster.scenario import Scenario
from spillway_lab.simulator.cluster.simulation import simulate

__all__ = ["Scenario", "simulate"]
