"""A command that serves until the user ends it."""

from __future__ import annotations

import signal
import threading


def until_interrupted() -> None:
    """Waits for Ctrl-C or the signal of a service manager."""
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        # A timeout, because a wait without one does not see the signal everywhere.
        while not ended.wait(1.0):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
