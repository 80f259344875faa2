"""Cursors: where a list goes on, so that rows which come meanwhile neither hide others nor show them twice.

An endpoint that lists reads its filters first and then its page, asks its query for rows beyond `page.last` (older
ones, or newer ones where the order is `asc`), and answers `page.pagination(…)`:

    parameters = Parameters(call.query_string)
    status = parameters.take("status", …)
    page = taken_page(parameters, "refunds", {"status": status})
    parameters.finish()
    refunds, total = await queries.list_refunds(…, before=page.last, limit=page.limit, offset=page.offset)
    return success({"refunds": […], "pagination": page.pagination([refund.id for refund in refunds], total=total)})

To clients a cursor is opaque: the last id of a page, and a fingerprint of the list and its filters, with which it goes.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from zembil.web.parameters import LIMIT_DEFAULT, Parameters

_FORM = re.compile(r"[A-Za-z0-9_-]{32}")
_ID_BYTES, _FILTERS_BYTES = 16, 8

_encoder = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for."""

    limit: int
    offset: int
    last: uuid.UUID | None  # the last row of the page before, from the cursor
    filters: bytes  # a fingerprint of the list and its filters

    def cursor_at(self, last: uuid.UUID) -> str:
        """The cursor that goes on behind this row."""
        return base64.urlsafe_b64encode(last.bytes + self.filters).decode("ascii")

    def next_cursor(self, listed: Sequence[uuid.UUID]) -> str | None:
        """The cursor of the page after these rows; None if this page is not full, so that nothing comes after it."""
        return self.cursor_at(listed[-1]) if len(listed) == self.limit else None

    def pagination(self, listed: Sequence[uuid.UUID], *, total: int | None = None) -> dict[str, Any]:
        """`pagination` of the answer; without a `total` it is a list that has no offset either."""
        shown: dict[str, Any] = {"limit": self.limit}
        if total is not None:
            shown |= {"offset": self.offset, "total": total}
        cursor = self.next_cursor(listed)
        return shown if cursor is None else shown | {"next_cursor": cursor}


def taken_page(
    parameters: Parameters,
    name: str,
    filters: Mapping[str, Any] | None = None,
    *,
    has_offset: bool = True,
    limit_default: int = LIMIT_DEFAULT,
) -> Page:
    """`limit`, `offset` and `cursor` of the list `name`, filtered by `filters` (as they were understood; None: absent).

    What is wrong is told by `parameters.finish()`: also a cursor of another list or other filters, or with an offset.
    """
    limit, offset = parameters.page(limit_default) if has_offset else (parameters.limit(limit_default), 0)
    fingerprint = _fingerprint(name, filters or {})

    def last_row(text: str) -> uuid.UUID | None:
        raw = base64.urlsafe_b64decode(text) if _FORM.fullmatch(text) else b""
        return uuid.UUID(bytes=raw[:_ID_BYTES]) if raw[_ID_BYTES:] == fingerprint else None

    message = "Give the next_cursor of this list, with the same filters as before."
    last = parameters.take("cursor", last_row, message)
    if has_offset and parameters.has("cursor") and parameters.has("offset"):
        parameters.refuse("cursor", "A cursor goes without offset: it says itself where the list goes on.")
    return Page(limit, offset, last, fingerprint)


def _fingerprint(name: str, filters: Mapping[str, Any]) -> bytes:
    given = {key: value for key, value in filters.items() if value is not None}
    return hashlib.sha256(_encoder.encode([name, given])).digest()[:_FILTERS_BYTES]
