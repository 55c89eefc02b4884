"""A driver that is paused at a call to the store and goes on later, while its successor works.

It runs in a thread of its own, but only one thread works at a time: who holds the baton. So a run is
the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Killed(BaseException):
    """The work ends here."""


class Baton:
    """Runs one piece of work until its end or its next pause."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._mine = threading.Semaphore(0)
        self._yours = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: How the work ended, if it failed.
        self.failure: BaseException | None = None
        self.ended = False
        self._killed = False
        #: Calls that may still be made before the next pause; None: all.
        self._calls: int | None = None

    def start(self) -> bool:
        """Begins; returns whether the work has ended, else it is paused."""
        self._thread.start()
        self._yours.acquire()
        return self.ended

    def go_on(self, calls: int | None = None) -> bool:
        """Goes on, for some calls or to the end; returns whether the work has ended."""
        if not self.ended:
            self._calls = calls
            self._mine.release()
            self._yours.acquire()
        return self.ended

    @property
    def here(self) -> bool:
        """Whether the caller is the work itself."""
        return threading.current_thread() is self._thread

    def pause(self) -> None:
        """The work stops here until somebody calls `go_on`."""
        self._yours.release()
        self._mine.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """The work never goes on."""
        self._killed = True
        self.go_on()

    def pass_call(self) -> None:
        """A call of work that was paused before: it stops again when its calls are used up."""
        if self._calls is None:
            return
        if self._calls <= 0:
            self.pause()
        if self._calls is not None:
            self._calls -= 1

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self.failure = problem
        self.ended = True
        self._yours.release()
