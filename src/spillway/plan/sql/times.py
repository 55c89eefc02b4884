"""Dates and timestamps written as text in a condition, as the numbers that Spark stores.

A date is a number of days, a timestamp a number of microseconds since 1970. Text without an offset is
in the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo

from spillway.plan.sql.kinds import DATE, TIMESTAMP, TIMESTAMP_NTZ, Kind

DAY_US = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d:\d\d)?")
#: Zones in which every day has 24 hours.
_STEADY = ("UTC", "Etc/UTC", "GMT", "Z")


class UnknownZone(Exception):
    """The session's time zone is not known on this machine."""


def is_steady(zone: str) -> bool:
    """Whether every day has 24 hours in a zone."""
    return zone in _STEADY


def time_of(text: str, kind: Kind, zone: str) -> int | None:
    """The date or timestamp that a text means; None if it means none.

    Example:
        >>> time_of("1970-01-02", DATE, "UTC"), time_of("tomorrow", DATE, "UTC")
        (1, None)
    """
    try:
        if kind == DATE:
            return _days(text) if _DATE.fullmatch(text) else None
        found = _TIME.fullmatch(text)
        if found is None or (kind == TIMESTAMP_NTZ and found[5]):
            return None
        return _micros(text, kind, zone)
    except (ValueError, OverflowError):
        return None  # that day or hour does not exist


def _days(text: str) -> int:
    return (dt.date.fromisoformat(text) - _EPOCH.date()).days


def _micros(text: str, kind: Kind, zone: str) -> int:
    moment = dt.datetime.fromisoformat(text)
    if kind == TIMESTAMP and moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        except (KeyError, ValueError) as problem:
            raise UnknownZone(zone) from problem
    if moment.tzinfo is not None:
        # Through UTC, because a local time that the clock skips means another moment.
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
