"""Turns rejections by Spark or the filesystem into errors for people.

It translates only errors that Spark raises while it checks a write: a wrong option, a missing column,
a missing driver class. The error of a running job passes through unchanged, because the job may have
failed anywhere before the sink, and the text may contain the error of a slot task.
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

#: All errors of a call into the JVM.
JVM_ERRORS = (PySparkException, Py4JJavaError)
_REFUSALS = (AnalysisException, IllegalArgumentException, UnsupportedOperationException)
_SPARK_EXCEPTION = "org.apache.spark.SparkException"


@contextmanager
def refusals(message: str, *, hint: str) -> Iterator[None]:
    """Raises what Spark rejects in the block as a `PlanError`; passes on errors of running jobs."""
    try:
        yield
    except JVM_ERRORS as error:
        if not _is_refusal(error):
            raise
        raise PlanError(message, detail=reason_of(error), hint=hint) from error


@contextmanager
def any_failure(message: str, *, hint: str) -> Iterator[None]:
    """Raises any failure in the block as a `PlanError`; for blocks without a job of the user."""
    try:
        yield
    except JVM_ERRORS as error:
        raise PlanError(message, detail=reason_of(error), hint=hint) from error


def reason_of(error: Exception) -> str:
    """The JVM's text for the cause of an error: one line, without the stack trace."""
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
