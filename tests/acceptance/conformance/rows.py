"""The words of the conformance tables.

A table is a list of headings and rows. A row is a promise in the page's words, what is asked, and what must come of it:

    Row("amount: must be greater than 0", POST("/payments", {"amount": 0, "currency": "ETB"}), faulty("amount"))
    Row("id: prefix pay_", the("created"), {"id": starts("pay_")})
    Row("first attempt at once, second after 1 minute", steps.the_schedule_is_kept)
    Row("4 in flight per endpoint", proved_by(test_deliveries.test_four_are_in_flight_to_an_endpoint_at_most))

The first asks once. The second looks at one of the things of the stage. The third takes several steps, in a function
whose name says them. The last was proved elsewhere, where it has the surroundings that it needs (a crash, a second
process, minutes of waiting); this row holds only that pytest runs that test.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.wire import Header, RawAnswer, demand_an_api_answer

# What is asked.


@dataclass(frozen=True)
class Asks:
    """A request. `{name}` in its path and its body stands for the id of a thing of the stage."""

    method: str
    path: str
    body: Any = None  # bytes go out as they are, anything else as JSON
    by: str | None = "admin"  # a role, a key, or nobody
    live: bool = False
    headers: tuple[Header, ...] = ()
    anew: bool = False  # by a merchant of its own, who has nothing yet


def _of(method: str) -> Callable[..., Asks]:
    def asks(path: str, body: Any = None, **options: Any) -> Asks:
        return Asks(method, path, body, **options)

    return asks


GET, HEAD, POST, PUT, PATCH, DELETE = (_of(method) for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))


@dataclass(frozen=True)
class The:
    """One of the things of the stage, by its name."""

    name: str


the = The


@dataclass(frozen=True)
class Proof:
    """Tests that hold the promise elsewhere."""

    tests: tuple[Callable[..., Any], ...]


def proved_by(*tests: Callable[..., Any]) -> Proof:
    return Proof(tests)


# What has to come of it.


@dataclass(frozen=True)
class Gives:
    """A success with this status, and data like this."""

    status: int
    data: Any = field(default_factory=dict[str, Any])
    headers: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Refuses:
    """A refusal with this status and code; of a validation_error, exactly these fields at fault."""

    status: int
    code: str
    fields: tuple[str, ...] = ()
    headers: dict[str, Any] = field(default_factory=dict[str, Any])


def gives(status: int, data: Any = None, **headers: Any) -> Gives:
    return Gives(
        status, {} if data is None else data, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def refuses(status: int, code: str, *fields: str, **headers: Any) -> Refuses:
    return Refuses(status, code, fields, {name.replace("_", "-"): value for name, value in headers.items()})


def faulty(*fields: str) -> Refuses:
    """400 validation_error that names these fields and no others."""
    return refuses(400, "validation_error", *fields)


# What a value is like: a type, a pattern, a function that says so, a dict of some of its fields, or the value itself.

ABSENT = object()
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NUMBER = (int, Decimal)
LINK = re.compile(r"http://127\.0\.0\.1:\d+/p/[A-Za-z0-9_-]+")


def starts(prefix: str) -> re.Pattern[str]:
    """An identifier: the prefix and 26 characters."""
    return re.compile(re.escape(prefix) + "[0-9a-z]{26}")


def text_or_null(found: Any) -> bool:
    """A text, or null where none was given."""
    return found is None or isinstance(found, str)


def exactly(*names: str) -> Callable[[Any], bool]:
    """An object with these fields and no others."""
    return lambda found: set(found) == set(names)


def each(expected: Any) -> Callable[[Any], bool]:
    """A list with something in it, and all of it like this."""
    return lambda found: bool(found) and not [fault for one in found for fault in unlike(expected, one)]


def digits(text: str) -> Callable[[Any], bool]:
    """A number that is written so, to the digit."""
    return lambda found: isinstance(found, NUMBER) and str(found) == text


def unlike(expected: Any, found: Any, where: str = "data") -> Iterator[str]:
    """Where a value is not as expected."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            yield f"{where} is {found!r}, no object"
            return
        for name, part in expected.items():  # pyright: ignore[reportUnknownVariableType]
            if (part is ABSENT) != (name not in found):
                yield f"{where}.{name} is {'there' if part is ABSENT else 'missing'}: {found}"
            elif part is not ABSENT:
                yield from unlike(part, found[name], f"{where}.{name}")
    elif not _is(expected, found):
        yield f"{where} is {found!r}, expected {expected!r}"


def _is(expected: Any, found: Any) -> bool:
    if isinstance(expected, (type, tuple)):
        return isinstance(found, expected) and (expected is bool or not isinstance(found, bool))
    if isinstance(expected, re.Pattern):
        return isinstance(found, str) and re.fullmatch(expected, found) is not None  # pyright: ignore[reportUnknownArgumentType]
    if callable(expected):
        return bool(expected(found))
    return found == expected


def demand_like(expected: Any, found: Any) -> None:
    faults = [*unlike(expected, found)]
    assert not faults, "\n".join(faults)


def demand_answer(expected: Gives | Refuses, answer: RawAnswer, *, has_body: bool = True) -> None:
    assert answer.status == expected.status, (answer.status, answer.body[:2000])
    if has_body and answer.status < 500:
        demand_an_api_answer(answer)
    if isinstance(expected, Refuses):
        assert answer.code == expected.code, answer.body
        assert sorted(set(answer.fields)) == sorted(set(expected.fields)), answer.body
    elif has_body:
        demand_like(expected.data, data_of(answer))
    demand_like(expected.headers, {name: answer.headers.get(name) for name in expected.headers})


def data_of(answer: RawAnswer) -> Any:
    """What a success holds, with its numbers to the digit."""
    return json.loads(answer.body, parse_float=Decimal)["data"]


# The tables.


@dataclass(frozen=True)
class Row:
    promise: str
    asked: Any  # Asks, The, Proof, or a function that takes the steps
    expected: Any = None

    def hold(self, stage: Any) -> None:
        match self.asked:
            case Asks():
                answer = (stage.anew() if self.asked.anew else stage).answer(self.asked)
                demand_answer(self.expected, answer, has_body=self.asked.method != "HEAD")
            case The(name):
                demand_like(self.expected, getattr(stage, name))
            case Proof(tests):
                for test in tests:
                    demand_a_test(test)
            case steps:
                stage.once(steps)


def demand_a_test(test: Callable[..., Any]) -> None:
    """That pytest runs this function, here and always: a test that was renamed, disabled or moved proves nothing."""
    module = inspect.getmodule(test)
    assert module is not None
    assert module.__file__ is not None
    assert Path(module.__file__).name.startswith("test_")
    assert test.__name__.startswith("test_")
    assert getattr(module, test.__name__) is test
    marks = {mark.name for mark in getattr(test, "pytestmark", [])}
    assert not marks & {"skip", "skipif", "xfail", "prove"}


def parameters(table: Sequence[str | Row]) -> list[Any]:
    """The rows for pytest, each under its heading."""
    heading, rows = "", list[Any]()
    for entry in table:
        if isinstance(entry, str):
            heading = entry
        else:
            assert entry.expected is not None or not isinstance(entry.asked, Asks | The), entry.promise
            rows.append(pytest.param(entry, id=f"{heading}: {entry.promise}"))
    return rows
