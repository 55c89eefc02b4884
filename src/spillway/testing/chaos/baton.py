"""Pauses a driver at a store call and resumes it later, while its successor works.

The driver has its own thread, but only the thread that holds the baton works. So every run of a
schedule is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Killed(BaseException):
    """Ends the work of a paused driver."""


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
        #: Calls that the work may still make before the next pause; None: no limit.
        self._calls: int | None = None

    def start(self) -> bool:
        """Starts the work; returns whether it has ended (else it is paused)."""
        self._thread.start()
        self._yours.acquire()
        return self.ended

    def go_on(self, calls: int | None = None) -> bool:
        """Resumes the work, for some calls or to its end; returns whether it has ended."""
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
        """Stops the work here until `go_on` is called."""
        self._yours.release()
        self._mine.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """Ends the work at its pause."""
        self._killed = True
        self.go_on()

    def pass_call(self) -> None:
        """Counts a call of resumed work; pauses the work again when its calls are used up."""
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
