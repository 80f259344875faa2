"""What answers show that is not a Struct where it is made: the same fields, described for the reference.

A test holds every one of them against real answers, so that none says what is not so.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from zembil.accounts.model import Role
from zembil.ledger.model import EntryKind
from zembil.payments.model import PaymentStatus
from zembil.rails.rail import Wallet
from zembil.webhooks.model import DeliveryStatus, EventType


class Customer(Struct):
    """A person whom the merchant remembers."""

    id: str
    email: str | None
    phone: str | None
    name: str | None
    metadata: dict[str, str]
    created_at: str
    updated_at: str
    livemode: bool
    external_id: str | UnsetType = UNSET


class Deleted(Struct):
    """What was taken away."""

    id: str
    deleted: Annotated[bool, Meta(extra_json_schema={"const": True})]


class WebhookEndpoint(Struct):
    """A registered webhook URL; its signing secret is shown at registration and at rotation only."""

    id: str
    url: str
    events: Annotated[list[str], Meta(description="Event types, or `*` alone for every type.")]
    description: str | None
    status: Literal["enabled", "disabled"]
    livemode: bool
    created_at: str
    failing_since: Annotated[str, Meta(description="Since when no attempt has succeeded.")] | UnsetType = UNSET
    rotates_at: Annotated[str, Meta(description="When the next secret signs alone.")] | UnsetType = UNSET


class WebhookEndpointWithSecret(WebhookEndpoint, kw_only=True):
    """A registered webhook URL with its signing secret: keep it, it is not shown again."""

    secret: Annotated[str, Meta(pattern="^whsec_")]


class Delivery(Struct):
    """One event for one endpoint, and how far it has come."""

    id: str
    event_id: str
    event_type: EventType
    webhook_id: str
    status: DeliveryStatus
    attempts_made: Annotated[int, Meta(ge=0, le=3)]
    created_at: str
    livemode: bool
    next_attempt_at: str | UnsetType = UNSET
    redelivery_of: Annotated[str, Meta(description="The delivery that this one repeats.")] | UnsetType = UNSET


class Attempt(Struct):
    """One POST of a delivery."""

    number: Annotated[int, Meta(ge=1, le=3)]
    started_at: str
    latency_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    status_code: int | UnsetType = UNSET
    error: Annotated[str, Meta(description="Why there was no usable answer; `unknown`: cut off.")] | UnsetType = UNSET
    response_body: Annotated[str, Meta(description="The first 4 KiB of the answer.")] | UnsetType = UNSET


class DeliveryWithAttempts(Delivery, kw_only=True):
    """One event for one endpoint, with every attempt."""

    attempts: list[Attempt]


class Recovered(Struct):
    """How many deliveries were made, or would be in a dry run."""

    deliveries: Annotated[int, Meta(ge=0)]


class EventObject(Struct):
    """`data` of an event."""

    object: Annotated[
        dict[str, Any],
        Meta(description="What the GET of the object answered when this happened."),
    ]


class Event(Struct):
    """A fact about a payment, a refund or a customer: what webhooks receive, byte for byte."""

    id: str
    type: EventType
    created: Annotated[int, Meta(description="Unix time in seconds.")]
    livemode: bool
    sequence: Annotated[int, Meta(ge=1, description="1, 2, 3 … for each object: its order, whatever comes first.")]
    data: EventObject
    previous_attributes: (
        Annotated[dict[str, Any], Meta(description="What the changed attributes were; an unset one is null.")]
        | UnsetType
    ) = UNSET


class ApiKey(Struct):
    """A key, without its secret."""

    id: str
    name: str
    role: Role
    last_four: str
    user_id: Annotated[str, Meta(description="In whose name it was made.")]
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    rate_limit: Annotated[int, Meta(ge=1)] | None
    livemode: bool


class ApiKeyWithSecret(ApiKey, kw_only=True):
    """A new key: keep it, it is not shown again."""

    key: Annotated[str, Meta(pattern="^sk_(test|live)_")]


class RolledApiKey(ApiKeyWithSecret, kw_only=True):
    """The new key, and the old one as it ends."""

    replaces: ApiKey


class SandboxClock(Struct):
    """The time in this sandbox."""

    now: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class ListedPayment(Struct):
    """A payment as lists show it."""

    id: str
    status: PaymentStatus
    amount: Decimal
    currency: str
    description: str | None
    created_at: str
    livemode: bool
    reference: str | UnsetType = UNSET


class Pagination(Struct):
    """Where this page lies in its list."""

    limit: Annotated[int, Meta(ge=1, le=100)]
    offset: Annotated[int, Meta(ge=0)]
    total: Annotated[int, Meta(ge=0)]
    next_cursor: Annotated[str, Meta(description="Of the next page; absent on the last one.")] | UnsetType = UNSET


class CursorPagination(Struct):
    """Where the next page begins."""

    limit: Annotated[int, Meta(ge=1, le=100)]
    next_cursor: Annotated[str, Meta(description="Of the next page; absent on the last one.")] | UnsetType = UNSET


class Balance(Struct):
    """What is held for the merchant."""

    currency: str
    available: Annotated[Decimal, Meta(description="Collected, and neither returned nor about to be.")]
    refunds_in_transit: Annotated[Decimal, Meta(description="Approved refunds that are on their way.")]
    unallocated: Annotated[Decimal, Meta(description="Money that belongs to no payment; it is returned by itself.")]


class LedgerEntry(Struct):
    """One movement of money between two accounts of the ledger."""

    id: str
    debit: str
    credit: str
    amount: Decimal
    currency: str
    source: Annotated[str, Meta(description="The charge or the refund that moved it.")]
    kind: EntryKind
    created_at: str


class DoubtfulCharge(Struct):
    """A charge of which nobody knows yet whether it brought money."""

    id: str
    payment_id: str
    state: Literal["in_doubt"]
    needs_review: Annotated[bool, Meta(description="The network never told; the operator has to find out.")]
    amount: Decimal
    currency: str
    mobile_money_provider: Wallet
    phone: str
    created_at: str
    asked: Annotated[int, Meta(ge=0, description="How often the network was asked.")]
    asks_again_at: str | None


class AskedCharge(Struct):
    """A charge as it stands after its network was asked."""

    id: str
    payment_id: str
    state: Annotated[str, Meta(description="`in_doubt` if the network still does not tell.")]
    payment_status: PaymentStatus
