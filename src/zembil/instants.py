"""Instants: aware datetimes in UTC, kept and shown to the millisecond."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:[Zz]|([+ -])(\d{2}):(\d{2}))?)?", re.ASCII
)
_OFFSET_MINUTES_MAX = 14 * 60


def milliseconds(at: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    delta = at - EPOCH
    return (delta.days * 86400 + delta.seconds) * 1000 + delta.microseconds // 1000


def to_the_millisecond(at: datetime) -> datetime:
    """The instant as it is stored and shown."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def shown(at: datetime) -> str:
    """The instant as it stands in every answer: `2026-11-21T09:54:00.000Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def parsed_range(text: str, zone: tzinfo = UTC) -> tuple[datetime, datetime] | None:
    """The first and the last instant that `text` means: a bare date is the whole day of the zone, a time is itself.

    Takes `YYYY-MM-DD` and RFC 3339; no offset means UTC. A `+` that was not escaped in an address arrives as a space
    and is read as `+`. None if it is neither, or lies outside the years that can be stored.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        if clock is None:
            first = datetime.combine(date.fromisoformat(day), datetime.min.time(), tzinfo=zone)
            return first.astimezone(UTC), (first + timedelta(days=1, milliseconds=-1)).astimezone(UTC)
        offset = _zone(sign, hours, minutes)
        microseconds = int((fraction or "0").ljust(6, "0")[:6])
        at = datetime.fromisoformat(f"{day}T{clock}").replace(microsecond=microseconds, tzinfo=offset).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at, at


def _zone(sign: str | None, hours: str | None, minutes: str | None) -> timezone:
    if sign is None or hours is None or minutes is None:
        return UTC
    offset_minutes = int(hours) * 60 + int(minutes)
    if offset_minutes > _OFFSET_MINUTES_MAX or int(minutes) > 59:
        raise ValueError("an offset is at most 14:00")
    return timezone(timedelta(minutes=-offset_minutes if sign == "-" else offset_minutes))
