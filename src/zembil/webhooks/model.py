"""Events, endpoints, deliveries and attempts."""

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from zembil import ids, instants
from zembil.accounts.model import Account
from zembil.ids import Prefix
from zembil.wire import encoded

ATTEMPTS_MAX = 3


class EventType(StrEnum):
    PAYMENT_CREATED = "payment.created"
    PAYMENT_PENDING = "payment.pending"
    PAYMENT_PROCESSING = "payment.processing"
    PAYMENT_COMPLETED = "payment.completed"
    PAYMENT_FAILED = "payment.failed"
    PAYMENT_CANCELLED = "payment.cancelled"
    REFUND_CREATED = "refund.created"
    REFUND_APPROVED = "refund.approved"
    REFUND_COMPLETED = "refund.completed"
    REFUND_FAILED = "refund.failed"
    CUSTOMER_CREATED = "customer.created"
    CUSTOMER_UPDATED = "customer.updated"


EVERY_TYPE = "*"


@dataclass(frozen=True, slots=True)
class Event:
    """A fact about an object, with the bytes that every receiver gets, fixed when the fact is written."""

    account_id: int
    id: uuid.UUID
    object_id: uuid.UUID
    sequence: int  # 1, 2, 3 … per object
    type: EventType
    created_at: datetime  # in the account's time
    payload: bytes


def event_about(
    account: Account, event_type: EventType, shown_object: Any, *, object_id: uuid.UUID, sequence: int, at: datetime
) -> Event:
    """The event that tells of `shown_object` as it is at the instant `at` of the database's time."""
    event_id = ids.new_id(at)
    created_at = account.now(at)
    payload = encoded(
        {
            "id": ids.shown(Prefix.EVENT, event_id),
            "type": event_type,
            "created": instants.milliseconds(created_at) // 1000,
            "livemode": account.livemode,
            "sequence": sequence,
            "data": {"object": shown_object},
        }
    )
    return Event(account.id, event_id, object_id, sequence, event_type, created_at, payload)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that a merchant registered for events."""

    account_id: int
    id: uuid.UUID
    url: str
    events: tuple[str, ...]
    description: str | None
    sealed_secret: bytes = field(repr=False)
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Dispatch:
    """An attempt that was recorded and is to be sent now: one POST of one event to one endpoint."""

    account_id: int
    livemode: bool
    endpoint_id: uuid.UUID
    delivery_id: uuid.UUID
    event_id: uuid.UUID
    attempt: int
    started_at: datetime
    url: str
    sealed_secret: bytes = field(repr=False)
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attempted:
    """What came of one attempt: the receiver's answer, or the kind of error that kept it from one."""

    latency_ms: int
    status_code: int | None = None
    error: str | None = None
    response_body: bytes = b""

    @property
    def succeeded(self) -> bool:
        return self.status_code == 200 and self.error is None
