"""The text of a failure that Spark and the user see: short, and with the innermost cause."""

from __future__ import annotations

from spillway.spark.runtime.failure import MOST, shortened, text_of

CALLS = "\n".join(f'  File "worker.py", line {at}, in call\n    call()' for at in range(200))
JAVA = (
    "".join(f"\tat org.apache.spark.Call{at}(Call.scala)\n" for at in range(200)) + "\t... 9 more\n"
)


def test_short_text_stays() -> None:
    assert shortened("[DIVIDE_BY_ZERO] Division by zero") == "[DIVIDE_BY_ZERO] Division by zero"
    assert shortened("") == ""


def test_error_at_the_end_of_a_python_text_is_kept_with_the_calls_before_it() -> None:
    text = f"Worker failed:\nTraceback (most recent call last):\n{CALLS}\nValueError: 1,5 is odd"
    short = shortened(text)
    assert len(short) <= MOST
    assert short.startswith("Worker failed:\nTraceback")
    assert short.endswith("line 199, in call\n    call()\nValueError: 1,5 is odd")


def test_error_of_a_worker_inside_a_java_text_is_kept() -> None:
    text = (
        f"Job aborted:\n{JAVA}Caused by: org.apache.spark.api.python.PythonException: "
        f"Traceback (most recent call last):\n{CALLS}\nArrowInvalid: overflow\nin 2 lines\n\n{JAVA}"
    )
    short = shortened(text)
    assert len(short) <= MOST
    assert short.endswith("ArrowInvalid: overflow\nin 2 lines")
    assert "Call.scala" not in short
    assert short.startswith("Job aborted:\nCaused by: org.apache.spark.api.python.PythonException")


def test_deepest_cause_of_a_java_text_is_kept() -> None:
    text = f"Job aborted:\n{JAVA}Caused by: A: wrapped\n{JAVA}Caused by: B: no space left\n{JAVA}"
    assert shortened(text) == "Job aborted:\nCaused by: A: wrapped\nCaused by: B: no space left"


def test_beginning_of_a_long_error_is_kept() -> None:
    short = shortened(f"Traceback (most recent call last):\n{CALLS}\nKeyError: {'long ' * 1000}")
    assert len(short) <= MOST
    assert "KeyError: long" in short


def test_causes_that_the_jvm_gave_follow() -> None:
    outer, inner = RuntimeError("Job aborted"), ValueError("no space left")
    outer._cause = inner
    assert text_of(outer) == "Job aborted\nCaused by: no space left"
    inner._cause = KeyError("space")
    assert text_of(outer).endswith("Caused by: no space left\nCaused by: 'space'")


def test_cause_that_the_text_has_is_not_repeated() -> None:
    outer = RuntimeError("Job aborted: no space left")
    outer._cause = ValueError("no space left")
    assert text_of(outer) == "Job aborted: no space left"
