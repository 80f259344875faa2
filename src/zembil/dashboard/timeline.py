"""The time line of a payment: what was asked of the API, what happened, and what was told to whom."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from zembil import ids
from zembil.dashboard import words
from zembil.dashboard.payments_queries import AttemptRow, ChargeRow, EventRow
from zembil.ids import Prefix
from zembil.payments.model import FAILURE_MESSAGES, ChargeState
from zembil.refunds.model import Refund
from zembil.web.request_queries import LoggedRequest
from zembil.webhooks.model import DeliveryStatus

_CLOCKS_DIFFER_MAX = timedelta(milliseconds=50)  # what is left when the process's clock was set by the database's


class Line(Struct, frozen=True):
    """One thing that happened, and where its record is."""

    at: datetime  # in the account's time
    kind: str  # in a word: Request, Charge, Event, Delivery
    text: str
    path: str | None = None  # of the record, inside the environment
    state: words.Worded | None = None
    detail: str = ""


class Happened(Struct, frozen=True):
    """Everything on record about a payment."""

    requests: Sequence[LoggedRequest]
    events: Sequence[EventRow]  # of the payment and of its refunds, in their order
    charges: Sequence[ChargeRow]
    refunds: Sequence[Refund]
    attempts: Sequence[AttemptRow]


class DeliveryPath(Protocol):
    """Says where a delivery's page is."""

    def __call__(self, delivery_id: str, /) -> str | None: ...


def lines(
    happened: Happened, *, clock_offset: timedelta, process_offset: timedelta, delivery_path: DeliveryPath
) -> list[Line]:
    """In the order in which it happened.

    `clock_offset` is how far the account's clock is ahead now; `process_offset` how far the process's is behind the
    database's: a request's id has the time of the process that took it.
    """
    refunds = {refund.id: refund for refund in happened.refunds}
    told = {event.id: event for event in happened.events}
    found = [
        *(_request(request, happened, clock_offset, process_offset) for request in happened.requests),
        *_charges(happened.charges),
        *(_event(event, refunds) for event in happened.events),
        *_attempts(happened.attempts, told, delivery_path),
    ]
    return sorted(found, key=lambda line: line.at)  # stable: what came together stays in this order


def _request(request: LoggedRequest, happened: Happened, clock_offset: timedelta, process_offset: timedelta) -> Line:
    """The event that a request caused says how far the account's clock was ahead then.

    What made the payment, or charged it, never stands behind that. Other requests come so long before their events that
    it does not matter how far clocks differ, and may come soon after the event of the request before.
    """
    at = ids.created_at(request.id) + process_offset
    since = at - _CLOCKS_DIFFER_MAX if (request.method, request.path[-9:]) == ("POST", "/payments") else at
    if caused := next((event for event in happened.events if ids.created_at(event.id) >= since), None):
        at, clock_offset = min(at, ids.created_at(caused.id)), caused.created_at - ids.created_at(caused.id)
    at += clock_offset
    if request.path.endswith("/charge"):
        begun = (ids.created_at(charge.id) for charge in happened.charges)
        at = min([at, *(began for began in begun if began >= at - _CLOCKS_DIFFER_MAX)])
    request_id = ids.shown_request_id(request.id)
    kind = "good" if request.status < 400 else "wait" if request.status < 500 else "bad"
    return Line(
        at,
        "Request",
        f"{request.method} {request.path}",
        f"/requests/{request_id}",
        (str(request.status), kind),
    )


def _charges(charges: Iterable[ChargeRow]) -> Iterator[Line]:
    for charge in charges:
        began = ids.created_at(charge.id)
        phone = charge.phone or "a number that was erased"
        yield Line(began, "Charge", f"{charge.rail.brand} was asked to charge {phone}", None, None, _id(charge))
        if charge.ended_at is not None:
            yield Line(
                charge.ended_at, "Charge", _ended(charge), None, words.CHARGE[charge.state], charge.raw_code or ""
            )
        elif charge.state in (ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW):
            yield Line(began, "Charge", "Nobody knows yet what became of it", "/balance", words.CHARGE[charge.state])


def _id(charge: ChargeRow) -> str:
    return ids.shown(Prefix.CHARGE, charge.id)


def _ended(charge: ChargeRow) -> str:
    if charge.failure_code is not None:
        return FAILURE_MESSAGES[charge.failure_code]
    if charge.state is ChargeState.CANCELLED:
        return "The prompt was taken back or declined"
    return "The wallet says that it was paid"


def _event(event: EventRow, refunds: Mapping[uuid.UUID, Refund]) -> Line:
    refund = refunds.get(event.object_id)
    detail = event.type.value + ("" if refund is None else f" · {ids.shown(Prefix.REFUND, refund.id)}")
    path = f"/events/{ids.shown(Prefix.EVENT, event.id)}"
    return Line(event.created_at, "Event", words.EVENT[event.type], path, None, detail)


def _attempts(
    attempts: Iterable[AttemptRow], told: Mapping[uuid.UUID, EventRow], delivery_path: DeliveryPath
) -> Iterator[Line]:
    for attempt in attempts:
        event = told[attempt.event_id]
        where = attempt.endpoint or "an endpoint that is gone"
        path = delivery_path(ids.shown(Prefix.DELIVERY, attempt.delivery_id))
        if attempt.number is None or attempt.started_at is None:
            state = words.DELIVERY[attempt.status]
            yield Line(event.created_at, "Delivery", f"{event.type.value} to {where}", path, state)
            continue
        again = f", attempt {attempt.number}" if attempt.number > 1 else ""
        yield Line(
            attempt.started_at,
            "Delivery",
            f"{event.type.value} to {where}{again}",
            path,
            _answered(attempt),
            "" if attempt.latency_ms is None else f"{attempt.latency_ms} ms",
        )


def _answered(attempt: AttemptRow) -> words.Worded:
    if attempt.latency_ms is None:
        is_under_way = attempt.status is DeliveryStatus.PENDING
        return ("Under way", "wait") if is_under_way else ("Cut off", "bad")
    if attempt.error is not None:
        return attempt.error, "bad"
    return str(attempt.status_code), "good" if attempt.status_code == 200 else "bad"
