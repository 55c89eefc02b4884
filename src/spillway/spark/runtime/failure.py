"""The text of a failure, shortened: the innermost error comes first.

The text of a failed Spark job holds the errors of several processes, each inside the next: the user's
function, the Python worker, the task, the job. The innermost one names the cause, and it is last.
"""

from __future__ import annotations

#: Characters of a failure that Spark gets (spark/runtime/loop.py).
MOST = 2000
_TRACEBACK, _CAUSED = "Traceback (most recent call last):", "Caused by: "
_LEFT_OUT = "\n  ...\n"


def text_of(problem: BaseException) -> str:
    """The text of a failure, with its causes from the JVM."""
    texts: list[str] = []
    found: object = problem
    while found is not None:
        if not any(str(found) in text for text in texts):
            texts.append(str(found))
        found = getattr(found, "_cause", None)
    return f"\n{_CAUSED}".join(texts)


def shortened(text: str, most: int = MOST) -> str:
    """The innermost error of a text, then as much of the text before it as fits, without JVM calls."""
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
    at = _innermost(lines)
    before, cause = "\n".join(lines[:at]), "\n".join(lines[at:]).strip()
    cause = _cut(cause, most * 3 // 4, end=0)
    return "\n".join(
        part for part in (_cut(before, most - len(cause) - 1, end=0.75), cause) if part
    )


def _innermost(lines: list[str]) -> int:
    """Where the last error of a Java or Python text begins."""
    begins = [at for at, line in enumerate(lines) if line.startswith(_CAUSED) or _TRACEBACK in line]
    if not begins:
        return 0
    if _TRACEBACK not in lines[begins[-1]]:
        return begins[-1]
    # The calls of a Python text are indented, the error after them is not.
    after = range(begins[-1] + 1, len(lines))
    return next((at for at in after if lines[at] and not lines[at][0].isspace()), begins[-1])


def _cut(text: str, most: int, end: float) -> str:
    """At most `most` characters; `end` is the part of them that comes from the end of the text."""
    if len(text) <= most:
        return text
    room = max(0, most - len(_LEFT_OUT))
    tail = int(room * end)
    return text[: room - tail] + _LEFT_OUT + text[len(text) - tail :]
