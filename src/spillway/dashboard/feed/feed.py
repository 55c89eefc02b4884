"""The feed of one dashboard: a producer publishes messages, pages read them, none waits for another.

A page that falls behind by more than the kept messages gets the whole history instead, so a slow reader
costs no memory. Every message is encoded once, for all pages.
"""

from __future__ import annotations

import threading
from collections import deque

import msgspec

from spillway.dashboard.feed.history import History
from spillway.dashboard.feed.news import News, encode

#: Encoded messages that a page may be behind, and their bytes.
MOST_BEHIND = 64
MOST_BYTES = 32 << 20


class Feed:
    """Messages of one producer, for any number of pages. All methods may run in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history = History()
        self._sequence = 0
        self._recent: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._watchers = 0

    def publish(self, news: News) -> None:
        """Adds a message."""
        with self._lock:
            self._sequence += 1
            numbered = msgspec.structs.replace(news, sequence=self._sequence)
            self._history = self._history.after(numbered)
            if self._watchers:
                self._keep(encode(numbered))
            else:
                self._forget()

    def _keep(self, data: bytes) -> None:
        self._recent.append((self._sequence, data))
        self._bytes += len(data)
        while len(self._recent) > 1 and (
            len(self._recent) > MOST_BEHIND or self._bytes > MOST_BYTES
        ):
            self._bytes -= len(self._recent.popleft()[1])

    def _forget(self) -> None:
        self._recent.clear()
        self._bytes = 0

    @property
    def history(self) -> History:
        """Everything that is kept."""
        with self._lock:
            return self._history

    @property
    def sequence(self) -> int:
        """The number of the last message."""
        return self._sequence

    @property
    def watchers(self) -> int:
        """How many pages are open."""
        return self._watchers

    def enter(self) -> None:
        """Counts one more page."""
        with self._lock:
            self._watchers += 1

    def leave(self) -> None:
        """Counts one page less."""
        with self._lock:
            self._watchers -= 1

    def since(self, sequence: int | None) -> tuple[int, list[bytes]]:
        """Returns the messages after a number, and the number to ask for next.

        None, or a number too far back, gives the whole history.
        """
        with self._lock:
            now = self._sequence
            if sequence is not None and sequence >= now:
                return now, []
            found = [(number, data) for number, data in self._recent if number > (sequence or 0)]
            if sequence is not None and found and found[0][0] == sequence + 1:
                return now, [data for _, data in found]
            history = self._history
        # Encoded without the lock: the producer never waits for a page that opens.
        return now, [encode(history.whole(now))]
