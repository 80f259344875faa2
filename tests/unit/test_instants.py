"""Times are read as RFC 3339 means them, and shown in one form."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zembil.instants import milliseconds, parsed_range, shown, to_the_millisecond

TIMES = {
    "2024-01-01T10:00:00Z": "2024-01-01T10:00:00.000Z",
    "2024-01-01t10:00:00z": "2024-01-01T10:00:00.000Z",
    "2024-01-01 10:00:00Z": "2024-01-01T10:00:00.000Z",
    "2024-01-01T10:00:00": "2024-01-01T10:00:00.000Z",
    "2024-01-01T10:00:00.5Z": "2024-01-01T10:00:00.500Z",
    "2024-01-01T10:00:00.123456789Z": "2024-01-01T10:00:00.123Z",
    "2024-01-01T10:00:00+03:00": "2024-01-01T07:00:00.000Z",
    "2024-01-01T10:00:00 03:00": "2024-01-01T07:00:00.000Z",
    "2024-01-01T10:00:00-03:30": "2024-01-01T13:30:00.000Z",
    "2024-01-01T10:00:00-00:00": "2024-01-01T10:00:00.000Z",
    "2024-01-01T10:00:00+00:00": "2024-01-01T10:00:00.000Z",
    "2024-01-01T10:00:00+14:00": "2023-12-31T20:00:00.000Z",
    "2024-01-01T10:00:00-14:00": "2024-01-02T00:00:00.000Z",
    "2024-02-29T23:59:59.999Z": "2024-02-29T23:59:59.999Z",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z",
}
DAYS = ["2024-01-01", "2024-02-29", "2024-12-31", "1970-01-01", "0001-01-01", "9999-12-31"]
NO_TIMES = [
    *("", " ", "now", "-1", "0", "1700000000", "2024", "2024-01", "2024-1-1", "24-01-01", "20240101", "2024-W01-1"),
    *("2024-02-30", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "0000-01-01", "10000-01-01", "+2024-01-01"),
    *("2024-01-01T", "2024-01-01Z", "2024-01-01T10", "2024-01-01T10Z", "2024-01-01T10:00Z", "2024-01-01T1:00:00Z"),
    *("2024-01-01T24:00:00Z", "2024-01-01T10:60:00Z", "2024-01-01T23:59:60Z", "2024-01-01T10:00:00.Z"),
    *("2024-01-01T10:00:00,5Z", "2024-01-01T10:00:00.1234567890Z", "2024-01-01T10:00:00+3", "2024-01-01T10:00:00+0300"),
    *(
        "2024-01-01T10:00:00+14:01",
        "2024-01-01T10:00:00+15:59",
        "2024-01-01T10:00:00+23:59",
        "2024-01-01T10:00:00+03:60",
    ),
    *("2024-01-01T10:00:00-14:01", "2024-01-01T10:00:00ZZ", "2024-01-01T10:00:00Z ", " 2024-01-01", "2024-01-01\n"),
    *(
        "2024-01-01T10:00:00 +03:00",
        "2024-01-01T10:00:00 EAT",
        "2024/01/01",
        "01.01.2024",
        "٢٠٢٤-٠١-٠١",
        "２０２４-01-01",
    ),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2024-01-01T10:00:00Z\0", "Mon, 01 Jan 2024 10:00:00"),
]


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_itself(text: str) -> None:
    found = parsed_range(text)
    assert found is not None
    assert found[0] == found[1]
    assert shown(found[0]) == TIMES[text]


@pytest.mark.parametrize("text", DAYS)
def test_a_bare_date_is_the_whole_day(text: str) -> None:
    found = parsed_range(text)
    assert found is not None
    assert (shown(found[0]), shown(found[1])) == (f"{text}T00:00:00.000Z", f"{text}T23:59:59.999Z")


@pytest.mark.parametrize("text", NO_TIMES)
def test_anything_else_is_no_time(text: str) -> None:
    assert parsed_range(text) is None


@given(st.text(alphabet="0123456789-+:.TtZz \0٣", max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = parsed_range(text)
    assert found is None or (found[0] <= found[1] and found[0].tzinfo is UTC)


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(timezone(timedelta(hours=3)))))  # noqa: DTZ001
def test_what_is_shown_is_read_back_to_the_millisecond(at: datetime) -> None:
    assert parsed_range(shown(at)) == (to_the_millisecond(at), to_the_millisecond(at))


@pytest.mark.parametrize(
    ("at", "count"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC), 1),
        (datetime(2026, 11, 21, 9, 54, 0, 123999, tzinfo=UTC), 1795254840123),
    ],
)
def test_milliseconds_count_from_1970_and_round_down(at: datetime, count: int) -> None:
    assert milliseconds(at) == count
