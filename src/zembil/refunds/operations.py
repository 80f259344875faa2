"""What is done with refunds; each joins its caller's transaction, and none calls a rail."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from msgspec import Raw

from zembil import ids, money
from zembil.accounts.model import Account, Actor, AuditAction
from zembil.accounts.operations import audit
from zembil.db.pool import Connection
from zembil.errors import (
    Fault,
    InvalidState,
    PaymentNotRefundable,
    RefundExceedsAvailable,
    ResourceNotFound,
    SelfApprovalForbidden,
)
from zembil.ids import Prefix
from zembil.ledger.model import EntryKind
from zembil.ledger.queries import insert_entries
from zembil.ledger.rules import entry_for
from zembil.payments.model import Charge, Payment, PaymentStatus
from zembil.payments.queries import find_paid_charge, lock_payment
from zembil.rails.rail import Outcome
from zembil.refunds import lifecycle, queries
from zembil.refunds.lifecycle import Change
from zembil.refunds.model import SYSTEM, Refund, RefundState, shown
from zembil.webhooks.model import Event, EventType, event_about
from zembil.webhooks.queries import insert_events


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundOrder:
    """What a merchant asked for, checked."""

    payment_id: uuid.UUID
    amount_santim: int | None  # None: all that is left
    reason: str | None = None
    metadata: Raw | None = None


async def request_refund(conn: Connection, account: Account, order: RefundOrder, *, by: str, at: datetime) -> Refund:
    """Reserve the amount and record the request.

    Raises ResourceNotFound, PaymentNotRefundable, RefundExceedsAvailable.
    """
    payment = await lock_payment(conn, account.id, order.payment_id)
    if payment is None:
        raise ResourceNotFound("There is no payment with this id.")
    charge = await find_paid_charge(conn, account.id, payment.id)
    if payment.status is not PaymentStatus.COMPLETED or charge is None:
        raise PaymentNotRefundable(
            f"This payment is {payment.status.value}; only a completed one can be refunded.",
            details=(Fault("payment_id", f"The payment is {payment.status.value}, not completed."),),
        )
    refund = Refund(
        account_id=account.id,
        id=ids.new_id(account.now(at)),
        payment_id=payment.id,
        charge_id=charge.id,
        amount_santim=_demand_available(payment, order.amount_santim),
        reason=order.reason,
        metadata=order.metadata,
        requested_by=by,
    )
    await _reserve(conn, refund)
    await queries.insert_refund(conn, refund)
    await insert_events(conn, [_event(account, EventType.REFUND_CREATED, refund, at=at)])
    return refund


async def _reserve(conn: Connection, refund: Refund) -> None:
    """The row is held, so this cannot fail; it is guarded all the same, as the database's own constraint is."""
    if not await queries.reserve(conn, refund.account_id, refund.payment_id, amount_santim=refund.amount_santim):
        raise RuntimeError("a held payment had less left than was read")


def _demand_available(payment: Payment, asked_santim: int | None) -> int:
    available = payment.amount_santim - payment.reserved_santim
    asked = available if asked_santim is None else asked_santim
    if asked > available or asked == 0:
        left = f"{money.shown(available)} {money.CURRENCY} of this payment can still be refunded."
        raise RefundExceedsAvailable(left, details=(Fault("amount", left),))
    return asked


async def approve_refund(
    conn: Connection, account: Account, refund_id: uuid.UUID, *, by: Actor, allow_self_approval: bool, at: datetime
) -> Refund:
    """Approve what another person asked for; the audit log says who did.

    Raises ResourceNotFound, InvalidState, SelfApprovalForbidden.
    """
    refund = await _lock_pending(conn, account, refund_id)
    is_own = refund.requested_by == by.name
    if is_own and not allow_self_approval:
        raise SelfApprovalForbidden("A refund is approved by another person than the one who asked for it.")
    change = lifecycle.approved(refund, by=by.name, self_approval=is_own, at=account.now(at), send_at=at)
    told = {"amount": money.shown(refund.amount_santim), "requested_by": refund.requested_by}
    await audit(conn, account.id, by, AuditAction.REFUND_APPROVED, ids.shown(Prefix.REFUND, refund_id), at=at, **told)
    return await write(conn, account, change, at=at)


async def reject_refund(
    conn: Connection, account: Account, refund_id: uuid.UUID, *, by: Actor, reason: str | None, at: datetime
) -> Refund:
    """Refuse a refund, which the audit log says; what it had reserved is free again.

    Raises ResourceNotFound, InvalidState.
    """
    refund = await _lock_pending(conn, account, refund_id)
    refund_name = ids.shown(Prefix.REFUND, refund_id)
    await audit(conn, account.id, by, AuditAction.REFUND_REJECTED, refund_name, at=at, reason=reason)
    return await write(conn, account, lifecycle.rejected(refund, message=reason), at=at)


async def _lock_pending(conn: Connection, account: Account, refund_id: uuid.UUID) -> Refund:
    found = await queries.find_refund(conn, account.id, refund_id)
    if found is None:
        raise ResourceNotFound
    _, refund = await lock_refund(conn, account, found)
    if refund.state is not RefundState.PENDING_APPROVAL:
        raise InvalidState(f"This refund is {refund.status.value}; only one that awaits approval can be decided.")
    return refund


async def return_surplus(
    conn: Connection, account: Account, charge: Charge, *, at: datetime, again: bool = False
) -> Refund | None:
    """Ask for and approve the return of money that was never the payment's: to be sent at once, by nobody's wish.

    None if that was done before; with `again`, if it is being returned or has been.
    """
    if charge.received_santim is None:
        raise ValueError("only a surplus charge brought money that is returned")
    await lock_payment(conn, account.id, charge.payment_id)
    if await queries.has_surplus_refund(conn, account.id, charge.id, failed_too=not again):
        return None
    requested = Refund(
        account_id=account.id,
        id=ids.new_id(account.now(at)),
        payment_id=charge.payment_id,
        charge_id=charge.id,
        of_surplus=True,
        amount_santim=charge.received_santim,
        reason="Money that arrived and was not the payment's.",
        requested_by=SYSTEM,
    )
    await queries.insert_refund(conn, requested)
    await insert_events(conn, [_event(account, EventType.REFUND_CREATED, requested, at=at)])
    change = lifecycle.approved(requested, by=SYSTEM, self_approval=False, at=account.now(at), send_at=at)
    return await write(conn, account, change, at=at)


async def submit_refund(conn: Connection, account: Account, refund: Refund, *, at: datetime) -> Refund | None:
    """Record that a refund is being sent, before its rail hears of it; None if it went another way meanwhile."""
    current = await queries.lock_refund(conn, refund.account_id, refund.id)
    if current is None or current.state is not RefundState.APPROVED:
        return None
    submitted = lifecycle.submitted(current, at=at, clock_offset=account.clock_offset)
    await queries.update_refund(conn, submitted)
    return submitted


async def apply_outcome(conn: Connection, account: Account, refund: Refund, outcome: Outcome, *, at: datetime) -> None:
    """Commit what a rail said of a refund."""
    payment, current = await lock_refund(conn, account, refund)
    change = lifecycle.after(
        current,
        outcome,
        at=at,
        clock_offset=account.clock_offset,
        has_room=await _has_room(conn, payment, current),
    )
    if change is not None:
        await write(conn, account, change, at=at)


async def lock_refund(conn: Connection, account: Account, refund: Refund) -> tuple[Payment, Refund]:
    """Hold a refund and its payment, in the order of everybody who holds both. Raises ResourceNotFound."""
    payment = await lock_payment(conn, account.id, refund.payment_id)
    current = await queries.lock_refund(conn, account.id, refund.id)
    if payment is None or current is None:
        raise ResourceNotFound
    return payment, current


async def _has_room(conn: Connection, payment: Payment, refund: Refund) -> bool:
    """Whether what a refund that failed had reserved is still free."""
    if refund.state is not RefundState.FAILED:
        return True
    if refund.of_surplus:
        return not await queries.has_surplus_refund(conn, refund.account_id, refund.charge_id, failed_too=False)
    return payment.amount_santim - payment.reserved_santim >= refund.amount_santim


async def write(conn: Connection, account: Account, change: Change, *, at: datetime) -> Refund:
    """Write a change with its entries and its event; the rows of refund and payment are held."""
    refund = change.refund
    await queries.update_refund(conn, refund)
    if not refund.of_surplus and change.event_type is not None:
        if change.entry_kind is EntryKind.REFUND_COMPLETED_LATE:
            await _reserve(conn, refund)
        if refund.state is RefundState.FAILED:
            await queries.release(conn, refund)
        elif refund.state is RefundState.COMPLETED:
            await queries.count_as_refunded(conn, refund)
    if change.entry_kind is not None:
        entry = entry_for(
            change.entry_kind,
            of_surplus=refund.of_surplus,
            account_id=account.id,
            source_id=refund.id,
            amount_santim=refund.amount_santim,
            at=account.now(at),
        )
        await insert_entries(conn, [entry])
    if change.event_type is not None:
        await insert_events(conn, [_event(account, change.event_type, refund, at=at)])
    return refund


def _event(account: Account, event_type: EventType, refund: Refund, *, at: datetime) -> Event:
    return event_about(
        account,
        event_type,
        shown(refund, livemode=account.livemode),
        object_id=refund.id,
        sequence=refund.sequence,
        at=at,
    )
