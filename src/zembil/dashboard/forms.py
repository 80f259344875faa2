"""Forms: what was sent, read field by field; every fault stands beside its field."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from enum import StrEnum
from typing import TypeVar

from zembil.errors import Fault

Choice = TypeVar("Choice", bound=StrEnum)

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Form:
    """The fields of a form; what is wrong is in `errors` by field, and `values` fill the form again."""

    def __init__(self, fields: Sequence[tuple[str, str]] = ()) -> None:
        self._fields = fields
        self.values = dict(fields)
        self.errors: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def raw(self, name: str) -> str:
        """As it was sent: for passwords."""
        return self.values.get(name, "")

    def text(
        self,
        name: str,
        message: str,
        *,
        max_length: int = 200,
        required: bool = True,
        check: Callable[[str], Iterable[Fault]] | None = None,
    ) -> str:
        """A text without spaces around it; "" if it is empty or faulty. `check` says what else is wrong with it."""
        value = self.raw(name).strip()
        if len(value) > max_length or _UNPRINTABLE.search(value) or (required and not value):
            self.fail(name, message)
            return ""
        if value and check is not None and (fault := next(iter(check(value)), None)) is not None:
            self.fail(name, fault.message)
            return ""
        return value

    def all(self, name: str) -> list[str]:
        """Every value of a field that is sent as often as it is ticked."""
        return [value for key, value in self._fields if key == name]

    def choice(self, name: str, kinds: type[Choice], message: str) -> Choice | None:
        try:
            return kinds(self.raw(name))
        except ValueError:
            self.fail(name, message)
            return None

    def choices(self, name: str, allowed: Iterable[str], message: str) -> list[str]:
        """The ticked boxes, each once; something must be ticked, and nothing else than ours."""
        ticked = list(dict.fromkeys(self.all(name)))
        if not ticked or not set(ticked) <= set(allowed):
            self.fail(name, message)
        return ticked

    def whole_number(self, name: str, message: str, *, least: int, most: int) -> int | None:
        text = self.raw(name).strip()
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
        if number is None or not least <= number <= most:
            self.fail(name, message)
            return None
        return number

    def day(self, name: str, message: str) -> date | None:
        """A day, from a field of the type `date`; None if it is empty too, which is no fault."""
        text = self.raw(name).strip()
        try:
            return date.fromisoformat(text) if text else None
        except ValueError:
            self.fail(name, message)
            return None

    def ticked(self, name: str) -> bool:
        return self.raw(name) == "yes"

    def fail(self, name: str, message: str) -> None:
        self.errors.setdefault(name, message)
