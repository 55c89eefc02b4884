"""Protocols as pure state machines: a message in, a new state and messages out."""
