"""The user's own function as a sink."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spillway.errors import PlanError
from spillway.spark.sinks.spec import SinkBatch


class ForeachBatchSink:
    """Calls `function(df, batch_id)`; its exceptions pass through unchanged."""

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        _check(function)
        self._function = function

    def open(self, schema: StructType) -> None:
        """Does nothing: any schema works."""

    def write(self, batch: SinkBatch) -> None:
        """Passes the batch to the function."""
        self._function(batch.rows, batch.number)


def _check(function: object) -> None:
    if not callable(function):
        raise PlanError(
            f"foreachBatch expects a function, not {type(function).__name__} {function!r}",
            hint="pass a function of two parameters: def write(df, batch_id): ...",
        )
    if not _takes_two(function):
        name = getattr(function, "__name__", repr(function))
        raise PlanError(
            f"foreachBatch calls {name}(df, batch_id), but {name} takes {_parameters(function)}",
            hint="give the function exactly two required parameters: the DataFrame and the id",
        )


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        return False
    except ValueError:  # A builtin without a signature: only the call can show it.
        return True
    return True


def _parameters(function: Callable[..., object]) -> str:
    return str(inspect.signature(function))
