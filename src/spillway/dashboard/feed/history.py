"""What the feed keeps, so that a page that opens late sees the past minutes too.

`History` is a value: `after` returns the history with one more message, and forgets the oldest points
and happenings beyond the bounds. Of slots and groups it keeps the newest table of each stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spillway.dashboard.feed.news import About, Happening, Heat, News, Point, Slots
from spillway.redaction import hidden

#: Points of all stages: ten minutes of a query with one batch a second.
MOST_POINTS = 600
MOST_HAPPENINGS = 500
#: Groups that a happening or a move names; their number is exact.
MOST_SOME = 256
#: Characters of a text that comes from outside: a reason, an error, a name.
MOST_TEXT = 600

#: Happenings that are not events of the state: a start of the query, its end, and a request.
STARTED, STOPPED, ASKED = "started", "stopped", "asked"
MARKS = (STARTED, STOPPED, ASKED)


@dataclass(frozen=True)
class History:
    """The messages so far, added up."""

    about: About | None = None
    status: str = ""
    told: str = ""
    now_s: float | None = None
    points: tuple[Point, ...] = ()
    happenings: tuple[Happening, ...] = ()
    slots: dict[int, Slots] = field(default_factory=dict)
    heats: dict[int, Heat] = field(default_factory=dict)

    def after(self, news: News) -> History:
        """Returns the history with a message.

        Example:
            >>> History().after(News(status="running")).after(News(now_s=2.0)).status
            'running'
        """
        base = History() if news.whole else self
        return replace(
            base,
            about=news.about or base.about,
            status=news.status or base.status,
            told=news.told if news.status else base.told,
            now_s=base.now_s if news.now_s is None else news.now_s,
            points=(*base.points, *news.points)[-MOST_POINTS:],
            happenings=(*base.happenings, *news.happenings)[-MOST_HAPPENINGS:],
            slots={**base.slots, **{one.stage: one for one in news.slots}},
            heats={**base.heats, **{one.stage: one for one in news.heats}},
        )

    def whole(self, sequence: int) -> News:
        """Returns everything as one message, which replaces what a page has."""
        return News(
            sequence=sequence,
            whole=True,
            about=self.about,
            status=self.status,
            told=self.told,
            now_s=self.now_s,
            points=self.points,
            happenings=self.happenings,
            slots=tuple(self.slots.values()),
            heats=tuple(self.heats.values()),
        )


def safe(text: str) -> str:
    """A text from outside without secrets, cut to a length that fits on the page.

    A text far longer than that is cut before the search for secrets, whose time grows faster than the
    text.
    """
    text = hidden(text[: 4 * MOST_TEXT])
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def asked_now(history: History, told: str) -> News:
    """A command of the page as a line of the timeline, at the newest time of the feed."""
    newest = history.points[-1] if history.points else None
    at_s = max(history.now_s or 0.0, newest.at_s if newest else 0.0)
    batch = newest.batch if newest else -1
    return News(happenings=(Happening(0, at_s, 0, batch, ASKED, safe(told)),))
