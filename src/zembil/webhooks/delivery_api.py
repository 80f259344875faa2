"""Deliveries over HTTP: what became of each, and sending again or for a test."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct

from zembil import ids, instants
from zembil.accounts.permissions import Permission
from zembil.config import Settings
from zembil.db.pool import Connection, Database, reading, snapshot
from zembil.errors import Fault, ResourceNotFound
from zembil.ids import Prefix
from zembil.web.cursors import taken_page
from zembil.web.idempotency import Once
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body
from zembil.webhooks import delivery_queries, endpoint_queries, event_filters, operations
from zembil.webhooks.api import endpoint_id_of
from zembil.webhooks.delivery_queries import DeliveryFilter
from zembil.webhooks.model import Attempt, Delivery, DeliveryStatus, EventType
from zembil.webhooks.sender import Bell

_SINCE = "Give a date (2026-11-21) or a time (2026-11-21T09:54:00Z)."


def _check_since(text: str) -> Iterator[Fault]:
    if instants.parsed_range(text) is None:
        yield Fault("", _SINCE)


class SendTestEvent(Struct, frozen=True):
    """The body of POST /webhooks/{id}/test."""

    type: Annotated[EventType, must(f"Give one of: {', '.join(EventType)}.")]


class Recover(Struct, frozen=True):
    """The body of POST /webhooks/{id}/recover."""

    since: Annotated[str, must(_SINCE, check=_check_since, max_length=64)]
    dry_run: Annotated[bool, must("Give true or false.")] | None = None


@dataclass(frozen=True, slots=True)
class DeliveryEndpoints:
    """The endpoints of the API for deliveries."""

    db: Database
    settings: Settings
    once: Once
    bell: Bell

    def routes(self) -> list[Route]:
        manage = Permission.MANAGE_WEBHOOKS
        return [
            Route("GET", "/webhooks/{webhook_id}/deliveries", Permission.VIEW, self.list),
            Route("GET", "/deliveries/{delivery_id}", Permission.VIEW, self.read),
            Route("POST", "/deliveries/{delivery_id}/redeliver", manage, self.redeliver),
            Route("POST", "/webhooks/{webhook_id}/recover", manage, self.recover),
            Route("POST", "/webhooks/{webhook_id}/test", manage, self.send_test_event),
        ]

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        date_from, date_to = parameters.dates()
        wanted = DeliveryFilter(
            status=parameters.take("status", _status, f"Give one of: {', '.join(DeliveryStatus)}."),
            event_type=event_filters.taken_type(parameters),
            object_id=event_filters.taken_object(parameters),
            created_from=date_from,
            created_to=date_to,
        )
        filters = event_filters.fingerprinted(wanted) | {"status": wanted.status, "webhook": call.path_values[0]}
        page = taken_page(parameters, "deliveries", filters, has_offset=False)
        parameters.finish()
        endpoint_id = endpoint_id_of(call)
        async with reading(self.db) as conn:
            if await endpoint_queries.find_endpoint(conn, call.account.id, endpoint_id) is None:
                raise ResourceNotFound
            deliveries = await delivery_queries.list_deliveries(
                conn, call.account.id, endpoint_id, wanted, before=page.last, limit=page.limit
            )
        return success(
            {
                "deliveries": [_shown(delivery, call) for delivery in deliveries],
                "pagination": page.pagination([delivery.id for delivery in deliveries]),
            }
        )

    async def read(self, call: Call) -> Answer:
        delivery_id = _delivery_id_of(call)
        # One moment for both: an attempt that began in between would look like one that a crash cut off.
        async with snapshot(self.db) as conn:
            delivery = await delivery_queries.find_delivery(conn, call.account.id, delivery_id)
            if delivery is None:
                raise ResourceNotFound
            attempts = await delivery_queries.list_attempts(conn, call.account.id, delivery_id)
        under_way = delivery.attempts_made if delivery.is_in_flight(call.at) else None
        return success(
            _shown(delivery, call)
            | {"attempts": [_shown_attempt(attempt, is_under_way=attempt.number == under_way) for attempt in attempts]}
        )

    async def redeliver(self, call: Call) -> Answer:
        delivery_id = _delivery_id_of(call)

        async def work(conn: Connection) -> Answer:
            delivery = await operations.redeliver(conn, call.account, delivery_id, at=call.at)
            return success(_shown(delivery, call), status=201)

        return await self._once(call, work)

    async def recover(self, call: Call) -> Answer:
        asked = parsed_body(Recover, call.body)
        endpoint_id = endpoint_id_of(call)
        since, _ = instants.parsed_range(asked.since) or (call.account_at, None)
        dry_run = bool(asked.dry_run)

        async def work(conn: Connection) -> Answer:
            count = await operations.recover(conn, call.account, endpoint_id, since=since, dry_run=dry_run, at=call.at)
            return success({"deliveries": count})

        return await self._once(call, work)

    async def send_test_event(self, call: Call) -> Answer:
        asked = parsed_body(SendTestEvent, call.body)
        operations.demand_test_type(call.account, asked.type)
        endpoint_id = endpoint_id_of(call)

        async def work(conn: Connection) -> Answer:
            delivery = await operations.send_test_event(
                conn, call.account, endpoint_id, asked.type, public_url=self.settings.public_url, at=call.at
            )
            return success(_shown(delivery, call), status=201)

        return await self._once(call, work)

    async def _once(self, call: Call, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        answer = await self.once.answer(call.account.id, call.key, work, at=call.account_at)
        self.bell.ring()
        return answer


def _delivery_id_of(call: Call) -> UUID:
    delivery_id = ids.parsed(Prefix.DELIVERY, call.path_values[0])
    if delivery_id is None:
        raise ResourceNotFound
    return delivery_id


def _status(text: str) -> DeliveryStatus | None:
    return DeliveryStatus(text) if text in list(DeliveryStatus) else None


def _shown(delivery: Delivery, call: Call) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": ids.shown(Prefix.DELIVERY, delivery.id),
        "event_id": ids.shown(Prefix.EVENT, delivery.event_id),
        "event_type": delivery.event_type,
        "webhook_id": ids.shown(Prefix.ENDPOINT, delivery.endpoint_id),
        "status": delivery.status,
        "attempts_made": delivery.attempts_made,
        "created_at": instants.shown(delivery.created_at),
        "livemode": call.account.livemode,
    }
    next_at = delivery.next_attempt_at(call.at)
    if next_at is not None:
        document["next_attempt_at"] = instants.shown(call.account.now(next_at))
    if delivery.redelivery_of is not None:
        document["redelivery_of"] = ids.shown(Prefix.DELIVERY, delivery.redelivery_of)
    return document


def _shown_attempt(attempt: Attempt, *, is_under_way: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"number": attempt.number, "started_at": instants.shown(attempt.started_at)}
    if attempt.latency_ms is None:
        return document if is_under_way else document | {"error": "unknown"}
    document["latency_ms"] = attempt.latency_ms
    if attempt.status_code is not None:
        document["status_code"] = attempt.status_code
    if attempt.error is not None:
        document["error"] = attempt.error
    if attempt.response_body:
        document["response_body"] = attempt.response_body.decode("utf-8", "replace").replace("\0", "")
    return document
