"""Query parameters: read once, exactly, with every fault at once."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from zembil import instants
from zembil.errors import Fault, ValidationError

T = TypeVar("T")

LIMIT_DEFAULT, LIMIT_MAX = 10, 100
OFFSET_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[0-9]{1,19}")
_BRACKETED = re.compile(r"([^\[\]]*)\[(.*)\]", re.DOTALL)
_LATEST = datetime(9999, 12, 31, 23, tzinfo=instants.EPOCH.tzinfo)


class Parameters:
    """The parameters of one request, taken by name; `finish` raises what was wrong. Unknown ones are ignored."""

    def __init__(self, query_string: bytes) -> None:
        self._values: dict[str, str] = {}
        self._maps: dict[str, dict[str, str]] = {}
        self._repeated: set[str] = set()
        self._unreadable: set[str] = set()
        self._faults: list[Fault] = []
        for part in query_string.split(b"&"):
            if part:
                self._add(part)

    def _add(self, part: bytes) -> None:
        raw_name, _, raw_value = part.partition(b"=")
        name = unquote_to_bytes(raw_name.replace(b"+", b" ")).decode("utf-8", "replace")
        try:
            value = unquote_to_bytes(raw_value.replace(b"+", b" ")).decode("utf-8")
        except UnicodeDecodeError:
            value = "\0"
        if "\0" in value:
            self._unreadable.add(name)
        if name in self._values:
            self._repeated.add(name)
        self._values[name] = value
        if match := _BRACKETED.fullmatch(name):
            self._maps.setdefault(match[1], {})[match[2]] = value

    def take(self, name: str, read: Callable[[str], T | None], message: str) -> T | None:
        """The parameter as `read` understands it; None if it is absent or faulty."""
        if name in self._repeated or name in self._maps:
            self._faults.append(Fault(name, "Give this parameter once."))
        elif name in self._unreadable:
            self._faults.append(Fault(name, "This value is not UTF-8, or holds a NUL character."))
        elif name in self._values:
            value = read(self._values[name])
            if value is None:
                self._faults.append(Fault(name, message))
            return value
        return None

    def take_map(self, name: str) -> dict[str, str]:
        """The parameters `name[key]=value`."""
        found = self._maps.get(name, {})
        for key in found:
            full = f"{name}[{key}]"
            if full in self._repeated or full in self._unreadable or not key or "\0" in key:
                self._faults.append(Fault(f"{name}.{key}".replace("\0", "�"), "Give each key once, as UTF-8 text."))
        return found

    def page(self, limit_default: int = LIMIT_DEFAULT) -> tuple[int, int]:
        """`limit` and `offset`."""
        limit = self.limit(limit_default)
        offset = self.take("offset", _whole(0, OFFSET_MAX), "Give a whole number, 0 or more.")
        return limit, offset or 0

    def limit(self, default: int = LIMIT_DEFAULT) -> int:
        """`limit` alone, of lists that have no offset."""
        limit = self.take("limit", _whole(1, LIMIT_MAX), f"Give a whole number from 1 to {LIMIT_MAX}.")
        return default if limit is None else limit

    def has(self, name: str) -> bool:
        return name in self._values

    def refuse(self, name: str, message: str) -> None:
        """Add a fault that a parameter has together with others."""
        self._faults.append(Fault(name, message))

    def dates(self, zone: tzinfo = UTC) -> tuple[datetime | None, datetime | None]:
        """`date_from` and `date_to`, both inclusive, to the millisecond; a bare date is the whole day of the zone."""
        message = "Give a date (2026-11-21) or a time (2026-11-21T09:54:00Z)."
        first = self.take("date_from", partial(instants.parsed_range, zone=zone), message)
        last = self.take("date_to", partial(instants.parsed_range, zone=zone), message)
        date_from = first and _kept(min(first[0], _LATEST) + timedelta(microseconds=999))
        date_to = last and _kept(last[1])
        if first and last and first[0] > last[1]:
            self._faults.append(Fault("date_from", "date_from lies after date_to."))
        return date_from, date_to

    def finish(self) -> None:
        """Raises ValidationError if anything was wrong."""
        if self._faults:
            raise ValidationError(*self._faults)


def _kept(at: datetime) -> datetime:
    """The instant to the millisecond, within the years in which anything can have been created."""
    return max(instants.EPOCH, min(_LATEST, instants.to_the_millisecond(at)))


def _whole(least: int, most: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else -1
        return number if least <= number <= most else None

    return read
