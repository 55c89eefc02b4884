"""Sinks: where the result rows of a batch go.

`make_sink` turns what the user's writer verbs said (`SinkSpec`) into a `Sink`. A sink is opened
once, with the schema of the result, and then written once per batch, in order of batch ids. What
can be known to be wrong is said by `make_sink` and `Sink.open`, before the stream starts.

What a restart does to a batch that may have been written before:

    files         exactly once: the replayed batch replaces its own files
    memory        exactly once: the table is new with each start, and takes a batch id once
    foreachBatch  at least once: the function gets the batch id, and can tell a batch it knows
    console       shown again
    table, others at least once: rows of the replayed batch may be there twice
"""

from spillway.spark.sinks.choice import make_sink
from spillway.spark.sinks.spec import Sink, SinkSpec

__all__ = ["Sink", "SinkSpec", "make_sink"]
