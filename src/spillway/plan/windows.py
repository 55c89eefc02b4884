"""The windows of a group-by: which rows of a key are aggregated together, by their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EventWindows:
    """Tumbling, hopping or session windows, with the boundaries of Spark's own."""

    #: The length; of a session, the gap that ends it.
    length_us: int
    #: How far apart windows start; the length: tumbling windows. None: sessions.
    slide_us: int | None
    #: Where the first window after 1970 starts.
    start_us: int = 0
    #: Whether a key simply starts anew after such a gap, and results do not show its sessions.
    lasting: bool = False
    #: Whether each row has a window of this length before it, and gives one result.
    sliding: bool = False

    @property
    def session(self) -> bool:
        """Whether these are sessions."""
        return self.slide_us is None

    @property
    def name(self) -> str:
        """The column of results, with the name that Spark gives it."""
        return "session_window" if self.session else "window"

    @property
    def text(self) -> str:
        """Describes the windows for people.

        Example:
            >>> EventWindows(300_000_000, 60_000_000).text
            'hopping windows of 300 s every 60 s'
        """
        length = f"{self.length_us / 1e6:g} s"
        if self.sliding:
            return f"a window of {length} before each row"
        if self.lasting:
            return f"keys with a time to live of {length}"
        if self.slide_us is None:
            return f"sessions with a gap of {length}"
        offset = f", starting at {self.start_us / 1e6:g} s" if self.start_us else ""
        if self.slide_us == self.length_us:
            return f"tumbling windows of {length}{offset}"
        return f"hopping windows of {length} every {self.slide_us / 1e6:g} s{offset}"

    def fingerprint(self, mode: str) -> list[Any]:
        """The windows and what they give as plain data; the state depends on both."""
        return [self.text, mode]
