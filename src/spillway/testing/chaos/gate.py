"""Where disasters strike: store calls, tasks, local writes and sinks, counted anew in every event."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from spillway.state.runs.durable.full import naming_full_disk
from spillway.testing.chaos.baton import Baton
from spillway.testing.chaos.schedule import (
    AT_CALLS,
    AT_FAILURES,
    AT_LOCAL,
    AT_SINKS,
    AT_TASKS,
    Strike,
)

_CHANGING = ("write", "publish", "replace")


class DriverDied(BaseException):
    """The driver dies here with all its tasks; with `power`, all machines lose power."""

    def __init__(self, *, power: bool = False) -> None:
        super().__init__("the driver dies")
        self.power = power


class TaskDied(BaseException):
    """The process of a task dies here; with `host`, its whole machine."""

    def __init__(self, *, host: bool = False) -> None:
        super().__init__("a task dies")
        self.host = host


class Disasters:
    """The disasters of the current event, and how many have struck, by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: The number of disasters that have struck, and of store calls.
        self.struck = 0
        self.all_calls = 0
        self._due: list[Strike] = []
        self._seen: Counter[str] = Counter()
        #: Writes for which a local tier stays full.
        self._full = 0

    def arm(self, strikes: Sequence[Strike]) -> None:
        """Begins an event with these disasters."""
        self._due = list(strikes)
        self._seen = Counter()
        self._full = 0

    def disarm(self) -> None:
        """Ends all disasters."""
        self.arm(())

    def holds(self, kind: str) -> bool:
        """Whether a disaster of a kind is still to come in this event."""
        return any(strike.kind == kind for strike in self._due)

    def at_call(self, fits: Callable[[Strike], bool]) -> list[Strike]:
        """Takes the disasters of the next store call."""
        self.all_calls += 1
        return self._at("calls", AT_CALLS, fits)

    def at_task(self) -> list[Strike]:
        """Takes the disasters of the next task."""
        return self._at("tasks", AT_TASKS, lambda _: True)

    def at_write(self) -> list[Strike]:
        """Takes the disasters of the next write of the sink."""
        return self._at("writes", AT_SINKS, lambda _: True)

    def at_local(self) -> Strike | None:
        """Takes the disaster of the next write to a local tier."""
        found = next(iter(self._at("local", AT_LOCAL, lambda _: True)), None)
        if found is not None and found.kind == "scratch_full":
            self._full = found.arg
        elif found is None and self._full:
            self._full -= 1
            self.struck += 1
            return Strike("scratch_full", 0)
        return found

    def at_failure(self) -> Strike | None:
        """Takes what follows the next failure of a step."""
        return next(iter(self._at("failures", AT_FAILURES, lambda _: True)), None)

    def _at(self, what: str, kinds: Sequence[str], fits: Callable[[Strike], bool]) -> list[Strike]:
        now = self._seen[what]
        self._seen[what] += 1
        found = [one for one in self._due if one.kind in kinds and one.at <= now and fits(one)]
        # One at a time, so that a call has one outcome.
        found = found if what in ("tasks", "writes") else found[:1]
        for one in found:
            self._due.remove(one)
            self.counts[one.kind] += 1
            self.struck += 1
        return found


class DriverGate:
    """The gate of one driver and its tasks."""

    def __init__(self, disasters: Disasters, wake: Callable[[int], None]) -> None:
        """`wake` lets a paused driver make some calls."""
        self._disasters = disasters
        self._wake = wake
        #: The host of the task that runs now; None: the driver itself works.
        self.host: int | None = None
        #: Pauses the driver; None: no disaster can pause it now.
        self.baton: Baton | None = None
        #: Whether the driver was ever paused: from then on, another one may own the checkpoint.
        self.past = False
        self._after: Strike | None = None

    def before(self, call: str) -> None:
        """Called before each store call; most disasters strike here."""
        if self.past:
            assert self.baton is not None
            self.baton.pass_call()
            return
        self._after = None
        for strike in self._disasters.at_call(lambda one: self._fits(one, call)):
            if strike.kind == "error" and strike.arg and call in (*_CHANGING, "delete"):
                self._after = strike
            else:
                self._happen(strike)

    def after(self, call: str) -> None:
        """Called after the effect; may lose the answer."""
        strike, self._after = self._after, None
        if strike is not None:
            raise OSError(errno.EIO, f"the answer to {call} is lost")

    def before_local(self, tier: str) -> None:
        """Called before each write to a local tier."""
        strike = None if self.past else self._disasters.at_local()
        match strike and strike.kind:
            case "scratch_full":
                with naming_full_disk(tier, f"the {tier} tier"):
                    raise OSError(errno.ENOSPC, "no space left")
            case "scratch_error":
                raise OSError(errno.EIO, f"the {tier} tier fails")
            case "scratch_die":
                raise DriverDied if self.host is None else TaskDied

    @contextmanager
    def task_on(self, host: int) -> Iterator[None]:
        """Marks calls as those of a task on a host."""
        before, self.host = self.host, host
        try:
            yield
        finally:
            self.host = before

    def _fits(self, strike: Strike, call: str) -> bool:
        if strike.kind == "full":
            return call in _CHANGING
        return strike.kind != "pause" or self.baton is not None

    def _happen(self, strike: Strike) -> None:
        match strike.kind:
            case "die" if self.host is not None:
                raise TaskDied(host=bool(strike.arg))
            case "die" | "kill":
                raise DriverDied
            case "power":
                raise DriverDied(power=True)
            case "error":
                raise OSError(errno.EIO, "the store fails")
            case "full":
                with naming_full_disk("durable", "the store"):
                    raise OSError(errno.ENOSPC, "no space left")
            case "wake":
                self._wake(strike.arg)
            case "pause":
                assert self.baton is not None
                self.past = True
                self.baton.pause()
