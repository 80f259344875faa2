"""Cursors go on where a page ended, and only with the list and the filters that they came from."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from zembil.errors import ValidationError
from zembil.web.cursors import Page, taken_page
from zembil.web.parameters import Parameters

ROWS = [uuid.UUID(int=number) for number in (9, 8, 7)]
FILTERS: dict[str, Any] = {"status": "failed", "since": datetime(2026, 11, 21, tzinfo=UTC), "phone": None}


def page_of(query: str, name: str = "refunds", filters: dict[str, Any] | None = None, **options: bool) -> Page:
    parameters = Parameters(query.encode())
    page = taken_page(parameters, name, filters, **options)
    parameters.finish()
    return page


def test_a_full_page_is_followed_by_one_that_goes_on_behind_its_last_row() -> None:
    page = page_of("limit=3", filters=FILTERS)
    assert page.last is None
    shown = page.pagination(ROWS, total=17)
    assert shown == {"limit": 3, "offset": 0, "total": 17, "next_cursor": shown["next_cursor"]}
    following = page_of(f"limit=5&cursor={shown['next_cursor']}", filters={**FILTERS, "added_later": None})
    assert (following.last, following.limit) == (ROWS[-1], 5)


def test_the_last_page_has_no_next_one() -> None:
    assert page_of("limit=4", has_offset=False).pagination(ROWS) == {"limit": 4}
    assert page_of("limit=4").pagination([], total=0) == {"limit": 4, "offset": 0, "total": 0}


@pytest.mark.parametrize(
    ("name", "filters"),
    [("payments", FILTERS), ("refunds", None), ("refunds", FILTERS | {"status": "completed"})],
)
def test_a_cursor_of_another_list_or_other_filters_is_refused(name: str, filters: dict[str, Any] | None) -> None:
    cursor = page_of("", filters=FILTERS).cursor_at(ROWS[0])
    with pytest.raises(ValidationError) as refused:
        page_of(f"cursor={cursor}", name, filters)
    assert [fault.field for fault in refused.value.details] == ["cursor"]


@pytest.mark.parametrize("cursor", ["", "x", "a" * 31, "a" * 32, "a" * 33, "%C3%A9" * 32, "=" * 32, "+" * 32])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ValidationError):
        page_of(f"cursor={cursor}")


def test_a_cursor_goes_without_offset() -> None:
    cursor = page_of("").cursor_at(ROWS[0])
    with pytest.raises(ValidationError):
        page_of(f"cursor={cursor}&offset=0")
    assert page_of(f"cursor={cursor}&offset=7", has_offset=False).offset == 0  # an unknown parameter there
