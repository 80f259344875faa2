"""Deliveries of an endpoint: what was sent, what was answered, and sending again."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from zembil import ids
from zembil.accounts import secrets
from zembil.accounts.model import AuditAction
from zembil.accounts.permissions import Permission
from zembil.dashboard.audit_log_queries import AuditFilter, list_entries
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import Connection, Database, reading, snapshot, transaction
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.web.cursors import taken_page
from zembil.webhooks import delivery_queries, diagnosis, endpoint_queries, event_filters, event_queries, operations
from zembil.webhooks.delivery_queries import DeliveryFilter
from zembil.webhooks.model import Attempt, Delivery, DeliveryStatus, Endpoint
from zembil.webhooks.sender import Bell

PATH = "/settings/webhooks/deliveries"
_COMMITS_WITHIN = timedelta(seconds=15)  # what is told of an instant may be committed a little later

_ERRORS = {
    "timeout": "No complete answer within 10 seconds.",
    "dns": "The host name was not found.",
    "tls": "No secure connection: the certificate is not valid for this name, or the protocol is too old.",
    "address_refused": "The address lies in a network that webhooks may not reach.",
    "connection_refused": "Nothing accepts connections at this address.",
    "connection_reset": "The connection was cut.",
    "invalid_answer": "The answer was no HTTP.",
}


@dataclass(frozen=True, slots=True)
class DeliveryPages:
    door: Doorkeeper
    bell: Bell

    def routes(self) -> list[Route]:
        return [
            page(f"{PATH}/{{id}}", self.show),
            action(f"{PATH}/{{id}}/redeliver", self.redeliver, Permission.MANAGE_WEBHOOKS),
        ]

    async def show(self, visit: Visit) -> Answer:
        delivery_id = _delivery_id(visit)
        # One moment for all: an attempt that began in between would look like one that was cut off.
        async with snapshot(self.door.db) as conn:
            delivery = await delivery_queries.find_delivery(conn, visit.account.id, delivery_id)
            if delivery is None:
                raise ResourceNotFound
            endpoint = await endpoint_queries.find_endpoint(conn, visit.account.id, delivery.endpoint_id)
            attempts = await delivery_queries.list_attempts(conn, visit.account.id, delivery_id)
            payload = await event_queries.find_payload(conn, visit.account.id, delivery.event_id)
            has_one_secret = endpoint is not None and await _has_one_secret(conn, endpoint, delivery)
        under_way = delivery.attempts_made if delivery.is_in_flight(visit.at) else None
        context = {
            "delivery": delivery,
            "delivery_id": visit.value("id"),
            "event_id": ids.shown(Prefix.EVENT, delivery.event_id),
            "endpoint_id": ids.shown(Prefix.ENDPOINT, delivery.endpoint_id),
            "endpoint": endpoint,
            "kind": KINDS[delivery.status],
            "next_at": delivery.next_attempt_at(visit.at),
            "redelivery_of": ids.shown(Prefix.DELIVERY, delivery.redelivery_of) if delivery.redelivery_of else None,
            "attempts": [
                (attempt, what_came(attempt, is_under_way=attempt.number == under_way), _text(attempt.response_body))
                for attempt in attempts
            ],
            "body": _text(payload or b""),
            "digest": self._digest(endpoint, payload, visit) if endpoint and has_one_secret and payload else None,
        }
        return Page("delivery.html", context)

    def _digest(self, endpoint: Endpoint, payload: bytes, visit: Visit) -> str | None:
        """What the contract's signature holds beside its time; it is the same in every attempt with one secret."""
        sealed = endpoint.sealed_secret
        if endpoint.sealed_next_secret is not None and not endpoint.is_rotating(visit.at):
            sealed = endpoint.sealed_next_secret
        bound_to = operations.secret_binding(endpoint.account_id, endpoint.id)
        secret = secrets.opened(self.door.settings.secret_key, sealed, bound_to=bound_to)
        return None if secret is None else diagnosis.digest(secret, payload)

    async def redeliver(self, visit: Visit) -> Answer:
        async with transaction(self.door.db) as conn:
            delivery = await operations.redeliver(conn, visit.account, _delivery_id(visit), at=visit.at)
        self.bell.ring()
        return GoTo(
            f"{PATH}/{ids.shown(Prefix.DELIVERY, delivery.id)}",
            Notice(
                "The same event is on its way again, with three attempts of its own. Reload to see what came of it."
            ),
        )


async def _has_one_secret(conn: Connection, endpoint: Endpoint, delivery: Delivery) -> bool:
    """Whether the secret that signs now signed every attempt: none was made, or took over, since the delivery was.

    Its id says when that was in the database's time, as the rotations are; attempts are told in the account's.
    """
    made_at = ids.created_at(delivery.id)
    if endpoint.rotates_at is not None and made_at < endpoint.rotates_at:
        return False
    rotations = AuditFilter(
        AuditAction.SECRET_ROTATED,
        object=ids.shown(Prefix.ENDPOINT, endpoint.id),
        since=made_at - _COMMITS_WITHIN,
    )
    return not await list_entries(conn, endpoint.account_id, rotations, before=None, limit=1)


KINDS = {
    DeliveryStatus.PENDING: "wait",
    DeliveryStatus.SUCCEEDED: "good",
    DeliveryStatus.FAILED: "bad",
    DeliveryStatus.CANCELLED: "quiet",
}


async def delivery_list(db: Database, visit: Visit, endpoint_id: uuid.UUID) -> dict[str, Any]:
    """What the page of an endpoint shows of its deliveries, filtered as its address says."""
    parameters = visit.parameters
    date_from, date_to = parameters.dates(visit.zone)
    wanted = DeliveryFilter(
        status=parameters.take("status", _status, "Choose one of the states."),
        event_type=event_filters.taken_type(parameters),
        object_id=event_filters.taken_object(parameters),
        created_from=date_from,
        created_to=date_to,
    )
    filters = event_filters.fingerprinted(wanted) | {"status": wanted.status, "webhook": str(endpoint_id)}
    asked = taken_page(parameters, "deliveries", filters, has_offset=False)
    parameters.finish()
    async with reading(db) as conn:
        deliveries = await delivery_queries.list_deliveries(
            conn, visit.account.id, endpoint_id, wanted, before=asked.last, limit=asked.limit
        )
    return {
        "deliveries": [
            (
                ids.shown(Prefix.DELIVERY, delivery.id),
                delivery,
                KINDS[delivery.status],
                delivery.next_attempt_at(visit.at),
            )
            for delivery in deliveries
        ],
        "next_cursor": asked.next_cursor([delivery.id for delivery in deliveries]),
        "statuses": [(status.value, status.value) for status in DeliveryStatus],
    }


def what_came(attempt: Attempt, *, is_under_way: bool) -> tuple[str, str]:
    """What came of an attempt, in words, and the kind of its colour."""
    if attempt.latency_ms is None:
        if is_under_way:
            return "Under way.", "wait"
        return "It was cut off; nobody knows whether it arrived. It counts as an attempt.", "wait"
    if attempt.error is not None:
        return _ERRORS.get(attempt.error, attempt.error), "bad"
    if attempt.status_code == 200:
        return "Answered 200: delivered.", "good"
    more = (
        " Redirects are not followed." if attempt.status_code is not None and 300 <= attempt.status_code < 400 else ""
    )
    return f"Answered {attempt.status_code}: this contract counts only 200.{more}", "bad"


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").replace("\0", "�")


def _delivery_id(visit: Visit) -> uuid.UUID:
    delivery_id = ids.parsed(Prefix.DELIVERY, visit.value("id"))
    if delivery_id is None:
        raise ResourceNotFound
    return delivery_id


def _status(text: str) -> DeliveryStatus | None:
    return DeliveryStatus(text) if text in list(DeliveryStatus) else None
