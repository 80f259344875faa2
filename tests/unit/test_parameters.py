"""Query parameters are read once and exactly."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zembil.errors import ValidationError
from zembil.web.parameters import Parameters


def fields(parameters: Parameters) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        parameters.finish()
    return [fault.field for fault in refused.value.details]


def taken(query: bytes, name: str = "note") -> str | None:
    parameters = Parameters(query)
    value = parameters.take(name, str, "")
    parameters.finish()
    return value


@pytest.mark.parametrize(
    ("query", "value"),
    [
        *((b"", None), (b"other=1", None), (b"note=", ""), (b"note", ""), (b"note=a", "a"), (b"note=a=b", "a=b")),
        *(
            (b"note=a+b", "a b"),
            (b"note=a%20b", "a b"),
            (b"note=a%2Bb", "a+b"),
            (b"n%6fte=a", "a"),
            (b"note=%zz", "%zz"),
        ),
        *((b"note=%E1%88%B0", "ሰ"), (b"&&note=a&", "a"), (b"note=a;b", "a;b"), (b"note=\xe1\x88\xb0", "ሰ")),
    ],
)
def test_a_parameter_is_decoded_once(query: bytes, value: str | None) -> None:
    assert taken(query) == value


@pytest.mark.parametrize(
    "query",
    [
        b"note=a&note=a",
        b"note=a&n%6fte=b",
        b"note[]=a",
        b"note[k]=a",
        b"note=a&note[]=b",
        b"note=%00",
        b"note=%ff",
        b"note=\xff",
    ],
)
def test_a_parameter_that_is_doubtful_is_refused(query: bytes) -> None:
    parameters = Parameters(query)
    assert parameters.take("note", str, "") is None
    assert fields(parameters) == ["note"]


def test_unknown_parameters_are_ignored_however_strange() -> None:
    Parameters(b"x=1&x=2&y[]=%ff&%00=%00").finish()


def test_a_map_is_taken_key_by_key() -> None:
    parameters = Parameters(b"metadata[a]=1&metadata%5Bb.c%5D=2&metadata[d][e]=3&metadata=x&other[a]=4")
    assert parameters.take_map("metadata") == {"a": "1", "b.c": "2", "d][e": "3"}
    parameters.finish()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"metadata[a]=1&metadata[a]=1", "metadata.a"),
        (b"metadata[a]=%00", "metadata.a"),
        (b"metadata[a]=%ff", "metadata.a"),
        (b"metadata[]=1", "metadata."),
        (b"metadata[a%00]=1", "metadata.a�"),
    ],
)
def test_a_key_that_is_doubtful_is_refused(query: bytes, field: str) -> None:
    parameters = Parameters(query)
    parameters.take_map("metadata")
    assert fields(parameters) == [field]


def test_a_page_begins_at_the_start_and_has_ten_items() -> None:
    assert Parameters(b"").page() == (10, 0)
    assert Parameters(b"limit=100&offset=9223372036854775807").page() == (100, 2**63 - 1)


def test_every_fault_is_told() -> None:
    parameters = Parameters(b"limit=0&offset=-1&date_from=x&date_to=y")
    parameters.page()
    parameters.dates()
    assert fields(parameters) == ["limit", "offset", "date_from", "date_to"]


def test_both_ends_of_a_range_are_inclusive_to_the_millisecond() -> None:
    first, last = Parameters(b"date_from=2024-01-01&date_to=2024-01-01").dates()
    assert first == datetime(2024, 1, 1, tzinfo=UTC)
    assert last == datetime(2024, 1, 1, 23, 59, 59, 999000, tzinfo=UTC)
    # What was created in the millisecond before began before the lower bound.
    first, last = Parameters(b"date_from=2024-01-01T10:00:00.0001Z&date_to=2024-01-01T10:00:00.0019Z").dates()
    assert first == last == datetime(2024, 1, 1, 10, 0, 0, 1000, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "0001-01-01T00:00:00Z", "9999-12-31", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59Z"]
)
def test_the_ends_of_time_are_moved_to_where_something_can_be(text: str) -> None:
    for name in ("date_from", "date_to"):
        for found in Parameters(f"{name}={text}".encode()).dates():
            assert found is None or datetime(1970, 1, 1, tzinfo=UTC) <= found < datetime(
                9999, 12, 31, 23, 1, tzinfo=UTC
            )


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    parameters = Parameters(b"date_from=2024-01-02&date_to=2024-01-01")
    parameters.dates()
    assert fields(parameters) == ["date_from"]


@given(st.binary(max_size=200) | st.text("&=[]%+0123456789abnote metadata\0", max_size=100).map(str.encode))
def test_no_query_breaks_the_reader(query: bytes) -> None:
    parameters = Parameters(query)
    parameters.page()
    parameters.dates()
    parameters.take("note", str, "")
    parameters.take_map("metadata")
    with suppress(ValidationError):  # which is the only refusal there is
        parameters.finish()
