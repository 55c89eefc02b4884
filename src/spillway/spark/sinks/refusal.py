"""What Spark or the filesystem refuses, told as an error for people.

Only errors that Spark raises while it looks at a write are translated here: a wrong option, a
missing column, a driver class that is not there. A job that fails while it runs is passed on as it
came, because it may have failed anywhere upstream of the sink, and its text may carry an error of
a slot task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    UnsupportedOperationException,
)

from spillway.errors import PlanError

#: Anything a call into the JVM raises.
JVM_ERRORS = (PySparkException, Py4JJavaError)
_REFUSALS = (AnalysisException, IllegalArgumentException, UnsupportedOperationException)
_SPARK_EXCEPTION = "org.apache.spark.SparkException"


@contextmanager
def refusals(message: str, *, hint: str) -> Iterator[None]:
    """Raise what Spark refuses inside the block as a `PlanError`; pass on what failed running."""
    try:
        yield
    except JVM_ERRORS as error:
        if not _is_refusal(error):
            raise
        raise PlanError(message, detail=reason_of(error), hint=hint) from error


@contextmanager
def any_failure(message: str, *, hint: str) -> Iterator[None]:
    """Raise any failure inside the block as a `PlanError`: for blocks that run no user's job."""
    try:
        yield
    except JVM_ERRORS as error:
        raise PlanError(message, detail=reason_of(error), hint=hint) from error


def reason_of(error: Exception) -> str:
    """The cause of an error in the words of the JVM, on one line, without its stack trace."""
    text = _root_cause(error) if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().partition("\n")[0]


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName()) != _SPARK_EXCEPTION
    return isinstance(error, _REFUSALS)


def _root_cause(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())
