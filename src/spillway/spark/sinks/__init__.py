"""Sinks: where the result rows of a batch go.

`make_sink` turns the user's writer verbs (`SinkSpec`) into a `Sink`. The query opens a sink once, with
the schema of the result, and then writes once per batch, in order of batch ids. `make_sink` and
`Sink.open` raise all errors that they can find before the stream starts.

After a restart, a replayed batch is written like this:

    files         exactly once: the batch replaces its own files
    delta, iceberg, postgresql
                  exactly once: the number of the batch is in the transaction (`transactions/`)
    memory        exactly once: the table is new with each start, and takes each batch id once
    foreachBatch  at least once: the function gets the batch id and can recognise the batch
    kafka         at least once: messages carry the number, and `without_repeats` drops repeats
    console       printed again
    table, others at least once: the rows of the batch may appear twice
"""

from spillway.spark.sinks.choice import make_sink
from spillway.spark.sinks.spec import Sink, SinkBatch, SinkSpec

__all__ = ["Sink", "SinkBatch", "SinkSpec", "make_sink"]
