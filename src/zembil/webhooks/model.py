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

EndpointKey = tuple[int, uuid.UUID]
"""An endpoint, by account and id."""


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
    payload: bytes = field(repr=False)


def event_about(
    account: Account,
    event_type: EventType,
    shown_object: Any,
    *,
    object_id: uuid.UUID,
    sequence: int,
    at: datetime,
    previous_attributes: dict[str, Any] | None = None,
) -> Event:
    """The event that tells of `shown_object` as it is at the instant `at` of the database's time.

    An event of a change says what the changed attributes were before: `previous_attributes`.
    """
    event_id = ids.new_id(at)
    created_at = account.now(at)
    document = {
        "id": ids.shown(Prefix.EVENT, event_id),
        "type": event_type,
        "created": instants.milliseconds(created_at) // 1000,
        "livemode": account.livemode,
        "sequence": sequence,
        "data": {"object": shown_object},
    }
    if previous_attributes is not None:
        document["previous_attributes"] = previous_attributes
    return Event(account.id, event_id, object_id, sequence, event_type, created_at, encoded(document))


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
    sealed_next_secret: bytes | None = field(default=None, repr=False)
    rotates_at: datetime | None = None  # when the next secret takes over, in the database's time
    failing_since: datetime | None = None

    def is_rotating(self, at: datetime) -> bool:
        """Whether two secrets sign at the instant `at`; afterwards only the next one does."""
        return self.rotates_at is not None and at < self.rotates_at


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one endpoint, and how far it has come."""

    id: uuid.UUID
    endpoint_id: uuid.UUID
    event_id: uuid.UUID
    event_type: str
    status: DeliveryStatus
    attempts_made: int
    created_at: datetime  # in the account's time
    redelivery_of: uuid.UUID | None = None
    due_at: datetime | None = None  # of the next attempt, in the database's time
    in_flight_until: datetime | None = None

    def is_in_flight(self, at: datetime) -> bool:
        return self.in_flight_until is not None and at < self.in_flight_until

    def next_attempt_at(self, at: datetime) -> datetime | None:
        """When the next attempt is due, in the database's time; nobody knows while one is under way."""
        return None if self.is_in_flight(at) or self.attempts_made == ATTEMPTS_MAX else self.due_at


@dataclass(frozen=True, slots=True)
class Attempt:
    """One POST of a delivery, as it is on record."""

    number: int
    started_at: datetime  # in the account's time
    latency_ms: int | None  # None: it is under way, or was cut off
    status_code: int | None
    error: str | None
    response_body: bytes


@dataclass(frozen=True, slots=True)
class Dispatch:
    """An attempt that was recorded and is to be sent now: one POST of one event to one endpoint."""

    account_id: int
    livemode: bool
    endpoint_id: uuid.UUID
    delivery_id: uuid.UUID
    event_id: uuid.UUID
    attempt: int
    url: str
    sealed_secret: bytes = field(repr=False)
    sealed_next_secret: bytes | None = field(repr=False)
    rotates_at: datetime | None
    is_test: bool
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
