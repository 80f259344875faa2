"""What is done with customers; each joins its caller's transaction."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec import UNSET, UnsetType

from zembil import ids, instants
from zembil.accounts.model import Account, Actor, AuditAction
from zembil.accounts.operations import audit
from zembil.customers import queries
from zembil.customers.model import Customer, previous_attributes, shown
from zembil.db.pool import Connection, UniqueViolation
from zembil.errors import DuplicateReference, Fault, InvalidState, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.webhooks.model import EventType, event_about
from zembil.webhooks.queries import insert_events
from zembil.wire import in_kept_order

METADATA_KEYS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerOrder:
    """Whom a merchant wants to remember, checked."""

    email: str | None
    phone: str | None
    name: str | None = None
    external_id: str | None = None
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerChange:
    """What is to change: UNSET keeps, None clears; in `metadata` a key of None is removed."""

    email: str | UnsetType | None = UNSET
    phone: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    external_id: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


async def create_customer(conn: Connection, account: Account, order: CustomerOrder, *, at: datetime) -> Customer:
    """Remember a customer. Raises DuplicateReference for its external_id."""
    created_at = instants.to_the_millisecond(account.now(at))
    customer = Customer(
        account_id=account.id,
        id=ids.new_id(created_at),
        email=order.email,
        phone=order.phone,
        name=order.name,
        external_id=order.external_id,
        metadata=in_kept_order(order.metadata),
        sequence=1,
        updated_at=created_at,
    )
    try:
        await queries.insert_customer(conn, customer)
    except UniqueViolation:
        raise _duplicate() from None
    event = event_about(
        account,
        EventType.CUSTOMER_CREATED,
        shown(customer, livemode=account.livemode),
        object_id=customer.id,
        sequence=customer.sequence,
        at=at,
    )
    await insert_events(conn, [event])
    return customer


async def update_customer(
    conn: Connection, account: Account, customer_id: uuid.UUID, change: CustomerChange, *, at: datetime
) -> Customer:
    """Change a customer, and tell of it if that changed anything.

    Raises ResourceNotFound, DuplicateReference, and ValidationError if neither e-mail nor phone would be left.
    """
    before = await queries.lock_customer(conn, account.id, customer_id)
    if before is None:
        raise ResourceNotFound
    after = changed(before, change)
    if after == before:
        return before
    after = replace(
        after,
        sequence=before.sequence + 1,
        updated_at=max(before.updated_at, instants.to_the_millisecond(account.now(at))),
    )
    try:
        await queries.update_customer(conn, after)
    except UniqueViolation:
        raise _duplicate() from None
    event = event_about(
        account,
        EventType.CUSTOMER_UPDATED,
        shown(after, livemode=account.livemode),
        object_id=after.id,
        sequence=after.sequence,
        at=at,
        previous_attributes=previous_attributes(before, after, livemode=account.livemode),
    )
    await insert_events(conn, [event])
    return after


async def erase_customer(
    conn: Connection, account: Account, customer_id: uuid.UUID, *, by: Actor, at: datetime
) -> None:
    """Erase a person: the customer, and who it was on its payments and charges, which stay.

    Raises ResourceNotFound, and InvalidState while money is on its way: its rail needs the phone.
    """
    if not await queries.delete_customer(conn, account.id, customer_id):
        raise ResourceNotFound
    # Payments before their charges, as everyone who holds both.
    await queries.erase_from_payments(conn, account.id, customer_id)
    if await queries.has_money_on_its_way(conn, account.id, customer_id):
        raise InvalidState(
            "A charge or a refund of this customer is under way, or late money may still come; "
            "erase the customer when that is over."
        )
    await queries.erase_from_charges(conn, account.id, customer_id)
    # The id alone: the log is kept for good, and says nothing of the person.
    await audit(conn, account.id, by, AuditAction.CUSTOMER_ERASED, ids.shown(Prefix.CUSTOMER, customer_id), at=at)


def changed(customer: Customer, change: CustomerChange) -> Customer:
    """The customer with what is to change. Raises ValidationError if nobody could reach the customer any more."""
    after = replace(
        customer,
        email=customer.email if change.email is UNSET else change.email,
        phone=customer.phone if change.phone is UNSET else change.phone,
        name=customer.name if change.name is UNSET else change.name,
        external_id=customer.external_id if change.external_id is UNSET else change.external_id,
        metadata=_merged(customer.metadata, change.metadata),
    )
    if after.email is None and after.phone is None:
        cleared = [name for name in ("email", "phone") if getattr(change, name) is None]
        raise ValidationError(*(Fault(name, "A customer keeps an e-mail address or a phone.") for name in cleared))
    if len(after.metadata) > METADATA_KEYS_MAX:
        raise ValidationError(
            Fault("metadata", f"There may be at most {METADATA_KEYS_MAX} keys, old and new together.")
        )
    return after


def _merged(metadata: dict[str, str], change: dict[str, str | None] | UnsetType | None) -> dict[str, str]:
    if change is UNSET:
        return metadata
    merged: dict[str, str | None] = {} if change is None else {**metadata, **change}
    return in_kept_order({key: value for key, value in merged.items() if value is not None})


def _duplicate() -> DuplicateReference:
    return DuplicateReference("Another customer has this external_id; look it up with GET /customers?external_id=…")
