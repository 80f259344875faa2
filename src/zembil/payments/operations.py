"""What is done with payments and charges; each is one transaction, and none calls a rail."""

import random
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Raw, Struct

from zembil import ids, instants
from zembil.accounts.model import Account, LateMoney
from zembil.accounts.queries import list_accounts
from zembil.db.grouped import GroupedWriter
from zembil.db.pool import Connection, Database, LockNotAvailable, UniqueViolation, transaction
from zembil.errors import (
    ApiError,
    IdempotencyInProgress,
    InvalidState,
    RateLimitExceeded,
    ResourceNotFound,
    ServiceUnavailable,
)
from zembil.ledger.queries import insert_entries
from zembil.ledger.rules import entry_for
from zembil.payments import lifecycle, queries
from zembil.payments.lifecycle import Change
from zembil.payments.model import CancellationReason, Charge, FailureCode, Payment, PaymentStatus, shown
from zembil.payments.queries import NewPayment
from zembil.rails import doubt
from zembil.rails.rail import AwaitingCustomer, InProgress, Outcome, Rail, Succeeded, Wallet
from zembil.web.idempotency import IdempotencyKey, claimed, demand_same_request
from zembil.web.queries import find_answer
from zembil.webhooks.model import Event, EventType, event_about
from zembil.webhooks.queries import insert_events
from zembil.wire import encoded, in_kept_order

PROMPTS_MAX = 3
PROMPTS_WINDOW = timedelta(minutes=10)
# The counts of an account are kept in so many rows, so that writers seldom wait for each other.
COUNT_SLOTS = 16


class PaymentOrder(Struct, frozen=True, kw_only=True):
    """What a merchant asked for, checked."""

    amount_santim: int
    lifetime_seconds: int | None = None  # None: as long as the account says
    email: str | None = None
    phone: str | None = None
    name: str | None = None
    customer_id: uuid.UUID | None = None
    description: str | None = None
    reference: str | None = None
    callback_url: str | None = None
    metadata: dict[str, str] | None = None
    mobile_money_provider: Wallet | None = None


def new_payment(
    order: PaymentOrder, account: Account, *, public_url: str, at: datetime, key: IdempotencyKey | None = None
) -> NewPayment:
    """The payment that an order makes at the instant `at` of the database's time, and the event that tells of it."""
    created_at = instants.to_the_millisecond(account.now(at))
    expires_at = created_at + timedelta(seconds=order.lifetime_seconds or account.payment_lifetime_seconds)
    payment = Payment(
        account_id=account.id,
        id=ids.new_id(created_at),
        amount_santim=order.amount_santim,
        expires_at=expires_at,
        # One that is to be pushed is due at once, and only then expires.
        due_at=at if order.mobile_money_provider else expires_at - account.clock_offset,
        link_secret=secrets.token_bytes(16),
        mobile_money_provider=order.mobile_money_provider,
        email=order.email,
        phone=order.phone,
        name=order.name,
        customer_id=order.customer_id,
        description=order.description,
        reference=order.reference,
        callback_url=order.callback_url,
        metadata=Raw(encoded(in_kept_order(order.metadata))) if order.metadata else None,
    )
    shown_payment = shown(payment, livemode=account.livemode, public_url=public_url)
    created = event_about(
        account, EventType.PAYMENT_CREATED, shown_payment, object_id=payment.id, sequence=payment.sequence, at=at
    )
    metadata_json = bytes(payment.metadata).decode() if payment.metadata else None
    return NewPayment(
        payment, shown_payment, created, metadata_json, key.key if key else None, key.fingerprint if key else None
    )


class PaymentWriter:
    """Creates payments in groups. Those with a reference go apart: one merchant's duplicate must not undo a group."""

    def __init__(self, db: Database) -> None:
        slots = random.sample(range(COUNT_SLOTS), COUNT_SLOTS)

        async def write(conn: Connection, rows: Sequence[NewPayment], writer: int) -> Sequence[bool]:
            return await queries.insert_payments(conn, rows, slot=slots[writer])

        async def write_referenced(conn: Connection, rows: Sequence[NewPayment], writer: int) -> Sequence[bool]:
            return await queries.insert_payments(conn, rows, slot=slots[-1 - writer])

        self._plain = GroupedWriter[NewPayment, bool](db, write)
        self._referenced = GroupedWriter[NewPayment, bool](db, write_referenced)

    async def create(self, new: NewPayment) -> bool:
        """Commit the payment with its event and deliveries; answers False if its idempotency key is taken.

        Raises UniqueViolation for its reference, IdempotencyInProgress if another request holds the key for long.
        """
        writer = self._plain if new.payment.reference is None else self._referenced
        try:
            return await writer.submit(new)
        except LockNotAvailable:
            if new.key is None:
                raise ServiceUnavailable from None
            raise IdempotencyInProgress from None

    async def drain(self) -> None:
        await self._plain.drain()
        await self._referenced.drain()


@dataclass(frozen=True, slots=True)
class Begun:
    """A charge that is committed; unless `is_new`, an earlier request with the same key began it."""

    payment: Payment
    charge: Charge
    is_new: bool = True


async def begin_charge(
    db: Database,
    account: Account,
    payment_id: uuid.UUID,
    rail: Rail,
    *,
    phone: str,
    pushed: bool,
    at: datetime,
    key: IdempotencyKey | None = None,
) -> Begun:
    """Commit a charge with the key of its request, before its rail hears of it.

    Raises ResourceNotFound, InvalidState (not pending, expired, a charge already open, five used, `pushed` although
    another charge was first), RateLimitExceeded, IdempotencyKeyReused, IdempotencyInProgress.
    """
    async with transaction(db) as conn:
        repeated = await _charge_of(conn, account, key, at=at) if key else None
        payment = await queries.lock_payment(conn, account.id, payment_id)
        if payment is None:
            raise ResourceNotFound
        if repeated is not None:
            return Begun(payment, repeated, is_new=False)
        if pushed and not _is_to_be_pushed(payment, at=at):
            raise InvalidState("The prompt that was asked for at creation is no longer due.")
        begun = await _begin(conn, account, payment, rail, phone=phone, pushed=pushed, at=at)
        if key is not None:
            await queries.update_key(conn, account.id, key.key, resource_id=begun.charge.id)
    return begun


def _is_to_be_pushed(payment: Payment, *, at: datetime) -> bool:
    """Whether its prompt is still due: once any charge of it was begun, a payment is next due when it expires."""
    return payment.due_at is not None and payment.due_at <= at


async def _begin(
    conn: Connection, account: Account, payment: Payment, rail: Rail, *, phone: str, pushed: bool, at: datetime
) -> Begun:
    """open_charge, if the phone was not asked too often: raises RateLimitExceeded."""
    _demand_chargeable(payment, account_at=account.now(at))
    if phone not in rail.test_phones:
        await queries.lock_phone(conn, account.id, phone)
        await demand_few_prompts(conn, account, phone, at=at)
    return await open_charge(conn, account, payment, rail.wallet, phone=phone, pushed=pushed, at=at)


async def open_charge(
    conn: Connection, account: Account, payment: Payment, wallet: Wallet, *, phone: str, pushed: bool, at: datetime
) -> Begun:
    """Record a charge of a payment whose row is held. Raises InvalidState."""
    _demand_chargeable(payment, account_at=account.now(at))
    charge = Charge(
        account_id=account.id,
        id=ids.new_id(account.now(at)),
        payment_id=payment.id,
        rail=wallet,
        phone=phone,
        pushed=pushed,
        ask_at=at + doubt.SUBMITTING_AT_MOST,
    )
    charged = lifecycle.charged(payment, charge)
    await queries.insert_charge(conn, charge)
    await queries.update_payment(conn, charged, was=payment)
    return Begun(charged, charge)


async def _charge_of(conn: Connection, account: Account, key: IdempotencyKey, *, at: datetime) -> Charge | None:
    """The charge that an earlier request with this key began; None if there is none, or nothing of it left us."""
    if await claimed(conn, account.id, key, at=account.now(at)):
        return None
    stored = await find_answer(conn, account.id, key.key)
    if stored is None:
        raise IdempotencyInProgress
    demand_same_request(stored, key)
    charge = await queries.find_charge(conn, account.id, stored.resource_id) if stored.resource_id else None
    if charge is None:
        raise IdempotencyInProgress
    return None if charge.failure_code is FailureCode.PROVIDER_UNAVAILABLE else charge


def _demand_chargeable(payment: Payment, *, account_at: datetime) -> None:
    if payment.status is not PaymentStatus.PENDING:
        raise InvalidState(f"This payment is {payment.status.value}; only a pending one can be charged.")
    if payment.open_charge_id is not None:
        raise InvalidState("A charge of this payment is still open; wait until it has ended.")
    if payment.charges_sent >= lifecycle.CHARGES_MAX:
        raise InvalidState(f"This payment was charged {lifecycle.CHARGES_MAX} times already.")
    if payment.expires_at <= account_at:
        raise InvalidState("This payment has expired.")


async def demand_few_prompts(conn: Connection, account: Account, phone: str, *, at: datetime) -> None:
    """Raises RateLimitExceeded for a phone that was asked often in the last minutes."""
    since = account.now(at) - PROMPTS_WINDOW
    if await queries.count_prompts(conn, account.id, phone, since=since) >= PROMPTS_MAX:
        raise RateLimitExceeded(
            f"This phone was asked {PROMPTS_MAX} times within 10 minutes; wait before it is asked again.",
            retry_after_seconds=int(PROMPTS_WINDOW.total_seconds()),
        )


async def apply_outcome(
    db: Database, account: Account, charge: Charge, outcome: Outcome, *, public_url: str, at: datetime
) -> Payment:
    """Commit what a rail said of a charge: charge, payment, events and deliveries together. Answers the payment."""

    async def apply() -> Payment:
        async with transaction(db) as conn:
            return await apply_outcome_in(conn, account, charge, outcome, public_url=public_url, at=at)

    try:
        return await apply()
    except UniqueViolation:
        # Another payment took the reference in this moment, or another charge the receipt. A fact from a rail is never
        # refused: now it is seen that they are taken.
        return await apply()


async def apply_outcome_in(
    conn: Connection, account: Account, charge: Charge, outcome: Outcome, *, public_url: str, at: datetime
) -> Payment:
    payment = await queries.lock_payment(conn, account.id, charge.payment_id)
    current = await queries.find_charge(conn, account.id, charge.id)
    if payment is None or current is None:
        raise ResourceNotFound
    is_late = payment.status in (PaymentStatus.FAILED, PaymentStatus.CANCELLED)
    taken = is_late and payment.reference is not None and await queries.is_reference_taken(conn, payment)
    now = lifecycle.Moment(
        at=at,
        clock_offset=account.clock_offset,
        transaction_id=ids.new_id(account.now(at)),
        accepts_late_money=account.late_money is LateMoney.ACCEPT and not taken,
        receipt_is_anothers=await _is_anothers(conn, current, outcome),
    )
    change = lifecycle.after(payment, current, outcome, now=now)
    if change is None:
        return payment
    await _write(conn, account, change, was=payment, public_url=public_url, at=at)
    return change.payment


async def set_apart_in(conn: Connection, account: Account, charge: Charge, *, public_url: str, at: datetime) -> Payment:
    """Book another amount, which came by a charge in doubt, as no payment's; the worker returns it.

    Raises ResourceNotFound, and InvalidState if no such amount came.
    """
    payment = await queries.lock_payment(conn, account.id, charge.payment_id)
    current = await queries.find_charge(conn, account.id, charge.id)
    if payment is None or current is None:
        raise ResourceNotFound
    now = lifecycle.Moment(
        at=at,
        clock_offset=account.clock_offset,
        transaction_id=ids.new_id(account.now(at)),
        accepts_late_money=False,
    )
    change = lifecycle.set_apart(payment, current, now=now)
    if change is None:
        raise InvalidState("No other amount than the payment's came by this charge: it has succeeded or failed.")
    await _write(conn, account, change, was=payment, public_url=public_url, at=at)
    return change.payment


async def _is_anothers(conn: Connection, charge: Charge, outcome: Outcome) -> bool:
    """Whether the rail names the charge by a reference of its own that another charge has."""
    reference = outcome.rail_reference if isinstance(outcome, AwaitingCustomer | InProgress | Succeeded) else None
    if reference is None or reference == charge.rail_reference:
        return False
    return await queries.is_rail_reference_taken(conn, charge, reference)


class PromptOpen(InvalidState):
    """A payment cannot be cancelled while its prompt is open; the rail may be asked to take that back."""

    def __init__(self, payment: Payment, charge: Charge) -> None:
        super().__init__("A charge of this payment is still open; wait until it has ended.")
        self.payment = payment
        self.charge = charge


async def cancel_payment(
    db: Database, account: Account, payment_id: uuid.UUID, reason: CancellationReason, *, public_url: str, at: datetime
) -> Payment:
    """End a pending payment that nobody is being charged for. Raises ResourceNotFound, InvalidState."""
    async with transaction(db) as conn:
        return await cancel_payment_in(conn, account, payment_id, reason, public_url=public_url, at=at)


async def cancel_payment_in(
    conn: Connection,
    account: Account,
    payment_id: uuid.UUID,
    reason: CancellationReason,
    *,
    public_url: str,
    at: datetime,
    withdrawn: uuid.UUID | None = None,
) -> Payment:
    """End a pending payment without an open charge, or whose open charge its rail has `withdrawn`.

    Raises ResourceNotFound, PromptOpen, InvalidState.
    """
    payment = await queries.lock_payment(conn, account.id, payment_id)
    if payment is None:
        raise ResourceNotFound
    if payment.status is not PaymentStatus.PENDING:
        raise InvalidState(f"This payment is {payment.status.value}; only a pending one can be cancelled.")
    change: Change | None = None
    if payment.open_charge_id is None:
        change = lifecycle.cancelled(payment, reason, at=account.now(at))
    elif (charge := await queries.find_charge(conn, account.id, payment.open_charge_id)) is not None:
        if charge.id != withdrawn:
            raise PromptOpen(payment, charge)
        change = lifecycle.withdrawn(payment, charge, at=account.now(at))
    if change is None:
        raise InvalidState("The customer has confirmed already; wait until the charge has ended.")
    await _write(conn, account, change, was=payment, public_url=public_url, at=at)
    return change.payment


async def replace_charge(
    db: Database, account: Account, charge: Charge, rail: Rail, *, public_url: str, at: datetime
) -> Begun:
    """End a charge whose prompt its rail has taken back and begin another like it, for whoever looks at one moment.

    Raises InvalidState if the customer confirmed, or the charge ended, meanwhile; then nothing changes. If only the new
    charge cannot be, the old one has ended: raises InvalidState, RateLimitExceeded, ServiceUnavailable.
    """
    async with transaction(db) as conn:
        payment = await queries.lock_payment(conn, account.id, charge.payment_id)
        current = await queries.find_charge(conn, account.id, charge.id)
        change: Change | None = None
        if payment is not None and current is not None and payment.open_charge_id == current.id:
            change = lifecycle.taken_back(payment, current, at=account.now(at), clock_offset=account.clock_offset)
        if payment is None or change is None:
            raise InvalidState("The customer has confirmed already; wait until the charge has ended.")
        await _write(conn, account, change, was=payment, public_url=public_url, at=at)
        try:
            async with conn.transaction():
                return await _begin(conn, account, change.payment, rail, phone=charge.phone, pushed=False, at=at)
        except (InvalidState, RateLimitExceeded) as error:
            refused: ApiError = error
        except LockNotAvailable:  # somebody else has kept this phone to himself for long
            refused = ServiceUnavailable()
    raise refused


async def fail_unpushed(
    db: Database, account: Account, payment_id: uuid.UUID, failure_code: FailureCode, *, public_url: str, at: datetime
) -> None:
    """End a payment whose prompt, asked for at creation, cannot be pushed; nothing if it went another way meanwhile."""
    async with transaction(db) as conn:
        payment = await queries.lock_payment(conn, account.id, payment_id)
        if payment is None or payment.status is not PaymentStatus.PENDING or not _is_to_be_pushed(payment, at=at):
            return
        await fail_payment_in(conn, account, payment, failure_code, public_url=public_url, at=at)


async def fail_payment_in(
    conn: Connection, account: Account, payment: Payment, failure_code: FailureCode, *, public_url: str, at: datetime
) -> Payment:
    """End a pending payment without an open charge, whose row is held."""
    change = lifecycle.failed(payment, failure_code, at=account.now(at))
    await _write(conn, account, change, was=payment, public_url=public_url, at=at)
    return change.payment


async def expire_payments(db: Database, *, public_url: str, at: datetime, limit: int) -> tuple[list[Payment], int]:
    """Cancel payments whose time is over; answers those that are to be pushed instead, and how many were cancelled."""
    async with transaction(db) as conn:
        due = await queries.list_due_payments(conn, at=at, limit=limit)
        accounts = await list_accounts(conn, list({payment.account_id for payment in due}))
        to_push: list[Payment] = []
        # Counts are changed in the order in which groups of new payments change them, or the two could wait for each
        # other.
        for payment in sorted(due, key=lambda payment: (payment.account_id, payment.id.int % COUNT_SLOTS)):
            account = accounts[payment.account_id]
            if payment.expires_at > account.now(at):
                to_push.append(payment)
                continue
            change = lifecycle.expired(payment, at=account.now(at))
            await _write(conn, account, change, was=payment, public_url=public_url, at=at)
    return to_push, len(due) - len(to_push)


async def _write(
    conn: Connection, account: Account, change: Change, *, was: Payment, public_url: str, at: datetime
) -> None:
    """Write a change: the payment's row is held, so that it is as it `was`."""
    if change.charge is not None:
        await queries.update_charge(conn, change.charge)
    if change.payment != was and not await queries.update_payment(conn, change.payment, was=was):
        raise RuntimeError("a payment changed while its row was held")
    if change.payment.status is not was.status:
        await queries.update_counts(conn, change.payment, was=was.status, slot=change.payment.id.int % COUNT_SLOTS)
    if change.entry_kind is not None and change.charge is not None:
        entry = entry_for(
            change.entry_kind,
            of_surplus=change.charge.received_santim is not None,
            account_id=account.id,
            source_id=change.charge.id,
            amount_santim=change.charge.received_santim or change.payment.amount_santim,
            at=account.now(at),
        )
        await insert_entries(conn, [entry])
    if change.told:
        await insert_events(
            conn,
            [_event(account, event_type, payment, public_url=public_url, at=at) for event_type, payment in change.told],
        )


def _event(account: Account, event_type: EventType, payment: Payment, *, public_url: str, at: datetime) -> Event:
    return event_about(
        account,
        event_type,
        shown(payment, livemode=account.livemode, public_url=public_url),
        object_id=payment.id,
        sequence=payment.sequence,
        at=at,
    )
