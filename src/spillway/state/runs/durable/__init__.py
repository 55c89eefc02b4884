"""The durable tier: the port that every checkpoint writes through, and its implementations."""

from spillway.state.runs.durable.opening import open_durable
from spillway.state.runs.durable.port import DurableStore

__all__ = ["DurableStore", "open_durable"]
