"""For tests of streaming queries: the batch oracle, multiset equality, finite streams, and faults.

A join of streams is correct if the multiset of all rows that it wrote equals a Spark batch join of all
rows that it read. `oracle` is that batch join, and `assert_same_rows` the comparison. `FileStream` is a
stream that a test can replay and read as a batch. `Faults` makes tasks, moves and commits of a query
fail, so that the comparison covers recovery too.

    orders = FileStream(spark, "in/orders", "id bigint, price double")
    orders.add([(1, 9.5), (2, 3.0)])
    orders.add([])                                  # a batch without rows
    joined = sw.join(orders=orders.stream(), ...).on("id")
    failing = Faults(tasks=(Fault("after-runs", batch=1, slot=0, marker="in/failed"),))
    ... joined.writeStream.faults(failing) ... availableNow ... fails; start it again ...
    expected = oracle({"orders": orders.batch(), ...}, {"orders": ("id",), ...})
    assert_same_rows(spark.read.parquet("out"), expected)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spillway.faults import CommitFault as CommitFault
    from spillway.faults import Fault as Fault
    from spillway.faults import Faults as Faults
    from spillway.faults import StepFault as StepFault
    from spillway.spark.sinks.kafka import without_repeats as without_repeats
    from spillway.testing.comparison import assert_same_rows as assert_same_rows
    from spillway.testing.comparison import multiset_difference as multiset_difference
    from spillway.testing.comparison import oracle as oracle
    from spillway.testing.sources import FileStream as FileStream
    from spillway.testing.steering import steer as steer

#: The module of each name. Names load on first use: `spillway.testing.chaos` needs no Spark.
_HOMES = {
    **dict.fromkeys(("CommitFault", "Fault", "Faults", "StepFault"), "spillway.faults"),
    "steer": "spillway.testing.steering",
    **dict.fromkeys(
        ("assert_same_rows", "multiset_difference", "oracle"), "spillway.testing.comparison"
    ),
    "FileStream": "spillway.testing.sources",
    "without_repeats": "spillway.spark.sinks.kafka",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - names are computed


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spillway.testing' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
