"""SQL for lists of payments: a page of rows, and how many there are in all."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import LiteralString

from msgspec import Struct

from zembil import ids
from zembil.db.pool import Connection
from zembil.payments.model import PaymentStatus


class PaymentFilter(Struct, frozen=True, omit_defaults=True):
    """Which payments of an account a list shows; None: any."""

    status: PaymentStatus | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None  # inclusive
    reference: str | None = None
    customer_id: uuid.UUID | None = None
    phone: str | None = None
    metadata_json: str | None = None  # an object whose keys and values must all be there

    @property
    def is_counted(self) -> bool:
        """Whether the counts know how many there are; other filters are counted row by row, by their index."""
        return self.reference is None and self.customer_id is None and self.phone is None and self.metadata_json is None

    @property
    def id_range(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        """The first id of the range of time, and the first beyond it."""
        return (
            ids.id_at(self.created_from) if self.created_from else None,
            ids.id_at(self.created_to + _MILLISECOND) if self.created_to else None,
        )


class ListedPayment(Struct, frozen=True):
    id: uuid.UUID
    status: PaymentStatus
    amount_santim: int
    description: str | None
    reference: str | None


_MILLISECOND = timedelta(milliseconds=1)
_PLACES: tuple[LiteralString, ...] = (
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$16",
)  # fmt: skip
_COUNTS: dict[PaymentStatus | None, LiteralString] = {
    None: "pending + completed + failed + cancelled",
    PaymentStatus.PENDING: "pending",
    PaymentStatus.COMPLETED: "completed",
    PaymentStatus.FAILED: "failed",
    PaymentStatus.CANCELLED: "cancelled",
}

# The inner limit tells the planner how few there can be; of a parameter it would expect a tenth of the account. What an
# offset skips is read from an index alone: only then the rows of the page are fetched.
_LIST = """
SELECT t.total, page.* FROM (SELECT {total} AS total) t LEFT JOIN (
    SELECT id, status, amount_santim, description, reference
    FROM (SELECT account_id, id {found} ORDER BY id DESC LIMIT 100 {skipping}) chosen
    JOIN payments USING (account_id, id)
    ORDER BY id DESC LIMIT {limit}
) page ON true
ORDER BY page.id DESC
"""
# Filters that nobody has counted: what fits is found once, for the total and for the page.
_FOUND = "WITH found AS MATERIALIZED (SELECT account_id, id {found})"
_COUNTED = """
(SELECT coalesce(sum({status}), 0)::bigint FROM payment_counts WHERE account_id = {account_id} AND {hours})
"""


class _Parameters(list[object]):
    """The parameters of a statement in the making."""

    def place(self, value: object) -> LiteralString:
        """Where the value stands in the statement."""
        self.append(value)
        return _PLACES[len(self) - 1]


async def list_payments(
    conn: Connection,
    account_id: int,
    wanted: PaymentFilter,
    *,
    limit: int,
    offset: int = 0,
    before: uuid.UUID | None = None,
) -> tuple[list[ListedPayment], int]:
    """Newest first, at most 100 older than the payment `before`, and how many there are in all; of one snapshot.

    Each set of filters is a statement of its own, made of literals, with only what was asked for in it: PostgreSQL
    plans a prepared statement once for whatever may come, and a filter that may be absent could use no index.
    """
    given = _Parameters()
    account = given.place(account_id)
    fitting = "FROM payments WHERE account_id = " + account + _fitting(wanted, given)
    found = fitting + _range(*wanted.id_range, given)
    if wanted.is_counted:
        beginning, total = "", _total(wanted, account, fitting, given)
    else:
        beginning, total = _FOUND.format(found=found), "(SELECT count(*) FROM found)"
        found = "FROM found WHERE true"
    page = _LIST.format(
        total=total,
        found=found + _range(None, before, given),
        skipping="OFFSET " + given.place(offset) if offset else "",
        limit=given.place(limit),
    )
    rows = await conn.fetch(beginning + page, *given)
    listed = [
        ListedPayment(
            row["id"], PaymentStatus(row["status"]), row["amount_santim"], row["description"], row["reference"]
        )
        for row in rows
        if row["id"] is not None
    ]
    return listed, rows[0]["total"]


async def list_payment_ids(
    conn: Connection, account_id: int, wanted: PaymentFilter, *, before: uuid.UUID | None
) -> list[uuid.UUID]:
    """At most 250 of a list that is read to its end: newest first, older than the payment `before`."""
    given = _Parameters()
    found = "FROM payments WHERE account_id = " + given.place(account_id) + _fitting(wanted, given)
    found += _range(*wanted.id_range, given) + _range(None, before, given)
    rows = await conn.fetch("SELECT id " + found + " ORDER BY id DESC LIMIT 250", *given)
    return [row["id"] for row in rows]


def _fitting(wanted: PaymentFilter, given: _Parameters) -> LiteralString:
    """The conditions of every filter but the dates."""
    conditions: LiteralString = ""
    if wanted.status is not None:
        conditions += " AND status = " + given.place(wanted.status)
    if wanted.reference is not None:
        conditions += " AND reference = " + given.place(wanted.reference)
    if wanted.customer_id is not None:
        conditions += " AND customer_id = " + given.place(wanted.customer_id)
    if wanted.phone is not None:
        conditions += " AND phone = " + given.place(wanted.phone)
    if wanted.metadata_json is not None:
        conditions += " AND metadata @> " + given.place(wanted.metadata_json)
    return conditions


def _range(first: uuid.UUID | None, beyond: uuid.UUID | None, given: _Parameters) -> LiteralString:
    """The conditions of a range of ids, which is a range of time."""
    conditions: LiteralString = ""
    if first is not None:
        conditions += " AND id >= " + given.place(first)
    if beyond is not None:
        conditions += " AND id < " + given.place(beyond)
    return conditions


def _total(wanted: PaymentFilter, account: LiteralString, fitting: LiteralString, given: _Parameters) -> LiteralString:
    """How many there are: whole hours come from the counts, the edges of a range from the payments themselves."""
    status = _COUNTS[wanted.status]
    if wanted.created_from is None and wanted.created_to is None:
        return _COUNTED.format(status=status, account_id=account, hours="hour = '-infinity'")
    first, beyond = wanted.id_range
    begin = _hour_not_before(wanted.created_from) if wanted.created_from else None
    end = _hour_not_after(wanted.created_to + _MILLISECOND) if wanted.created_to else None
    if begin and end:
        end = max(begin, end)
    hours = "hour >= " + given.place(begin) if begin else "hour > '-infinity'"
    hours += " AND hour < " + given.place(end) if end else ""
    total = _COUNTED.format(status=status, account_id=account, hours=hours)
    for edge in _edges(first, begin, end, beyond):
        total += "+ (SELECT count(*) " + fitting + _range(*edge, given) + ")"
    return total


def _edges(
    first: uuid.UUID | None, begin: datetime | None, end: datetime | None, beyond: uuid.UUID | None
) -> Iterator[tuple[uuid.UUID, uuid.UUID]]:
    """What of a range of ids lies before its first whole hour and after its last one."""
    if first is not None and begin is not None:
        until = ids.id_at(begin) if beyond is None else min(ids.id_at(begin), beyond)
        if first < until:
            yield first, until
    if beyond is not None and end is not None:
        since = ids.id_at(end) if first is None else max(ids.id_at(end), first)
        if since < beyond:
            yield since, beyond


def _hour_not_after(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _hour_not_before(at: datetime) -> datetime:
    hour = _hour_not_after(at)
    return hour if hour == at else hour + timedelta(hours=1)
