"""How payments and charges change: the tables, and what an outcome makes of both. Pure; docs/lifecycle.md draws it."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from zembil.payments.model import CancellationReason, Charge, ChargeState, FailureCode, Payment, PaymentStatus
from zembil.rails import rail
from zembil.webhooks.model import EventType

CHARGES_MAX = 5

# What each change of a payment is told as.
PAYMENT_CHANGES: dict[tuple[PaymentStatus, PaymentStatus], EventType] = {
    (PaymentStatus.PENDING, PaymentStatus.COMPLETED): EventType.PAYMENT_COMPLETED,
    (PaymentStatus.PENDING, PaymentStatus.FAILED): EventType.PAYMENT_FAILED,
    (PaymentStatus.PENDING, PaymentStatus.CANCELLED): EventType.PAYMENT_CANCELLED,
}

OPEN_STATES = frozenset(
    {
        ChargeState.SUBMITTING,
        ChargeState.AWAITING_CUSTOMER,
        ChargeState.IN_PROGRESS,
        ChargeState.IN_DOUBT,
        ChargeState.NEEDS_REVIEW,
    }
)
_ENDED_STATES = frozenset({ChargeState.SUCCEEDED, ChargeState.FAILED, ChargeState.CANCELLED})

# Where a charge may go from each state. Once confirmed it never goes back to waiting; once ended it stays.
CHARGE_CHANGES: dict[ChargeState, frozenset[ChargeState]] = {
    ChargeState.SUBMITTING: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.AWAITING_CUSTOMER: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.IN_PROGRESS: _ENDED_STATES | {ChargeState.IN_PROGRESS, ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW},
    ChargeState.IN_DOUBT: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.NEEDS_REVIEW: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.SUCCEEDED: frozenset(),
    ChargeState.FAILED: frozenset(),
    ChargeState.CANCELLED: frozenset(),
}

# When the rail is asked about a charge in doubt, after it came in doubt; then it is an operator's.
DOUBT_SCHEDULE = tuple(
    timedelta(seconds=seconds) for seconds in (5, 10, 20, 40, 60, 120, 300, 900, 3600, 6 * 3600, 24 * 3600)
)
# A charge whose call was cut off by a crash: no call lasts longer, so its rail can be asked.
SUBMITTING_AT_MOST = timedelta(seconds=15)
# The rail may not know a charge at once; before this, "not found" proves nothing, nor does it of one that it once knew.
_NOT_FOUND_PROVES_AFTER = timedelta(seconds=60)
# Rails that notify are asked now and then all the same: notifications get lost.
_SILENCE_AT_MOST = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Change:
    """What one step makes of a payment and its charge, and the events that tell of it, in order."""

    payment: Payment
    charge: Charge | None
    told: tuple[tuple[EventType, Payment], ...]  # each with the payment as it was then


def ended(
    payment: Payment,
    status: PaymentStatus,
    *,
    at: datetime,
    transaction_id: uuid.UUID | None = None,
    failure_code: FailureCode | None = None,
    cancellation_reason: CancellationReason | None = None,
) -> tuple[Payment, EventType]:
    """The payment in an end state, and the event that tells of it. Raises KeyError for a change not in the table."""
    event_type = PAYMENT_CHANGES[payment.status, status]
    payment = replace(
        payment,
        status=status,
        ended_at=at,
        due_at=None,
        open_charge_id=None,
        transaction_id=transaction_id,
        failure_code=failure_code,
        cancellation_reason=cancellation_reason,
        sequence=payment.sequence + 1,
    )
    return payment, event_type


def expired(payment: Payment, *, at: datetime) -> Change:
    payment, event_type = ended(payment, PaymentStatus.CANCELLED, at=at, cancellation_reason=CancellationReason.EXPIRED)
    return Change(payment, None, ((event_type, payment),))


def cancelled(payment: Payment, reason: CancellationReason, *, at: datetime) -> Change:
    payment, event_type = ended(payment, PaymentStatus.CANCELLED, at=at, cancellation_reason=reason)
    return Change(payment, None, ((event_type, payment),))


def failed(payment: Payment, failure_code: FailureCode, *, at: datetime) -> Change:
    payment, event_type = ended(payment, PaymentStatus.FAILED, at=at, failure_code=failure_code)
    return Change(payment, None, ((event_type, payment),))


def charged(payment: Payment, charge: Charge) -> Payment:
    """The payment while this new charge may bring money: it does not expire meanwhile."""
    return replace(payment, open_charge_id=charge.id, charges_sent=payment.charges_sent + 1, due_at=None)


def after(
    payment: Payment,
    charge: Charge,
    outcome: rail.Outcome,
    *,
    at: datetime,
    clock_offset: timedelta,
    transaction_id: uuid.UUID,
) -> Change | None:
    """What an outcome makes of a pending payment and its open charge; None if it comes too late to change anything.

    `at` is the database's time; the account's is `at + clock_offset`. `transaction_id` is used if money came.
    """
    if charge.state not in OPEN_STATES:
        return None
    account_at = at + clock_offset
    match outcome:
        case rail.AwaitingCustomer():
            return _prompted(payment, charge, outcome, at=at, account_at=account_at)
        case rail.InProgress():
            return _confirmed(payment, charge, outcome, at=at, account_at=account_at)
        case rail.Succeeded():
            if outcome.amount_santim != payment.amount_santim:
                return Change(
                    payment, _changed(charge, ChargeState.NEEDS_REVIEW, raw_code="amount_differs", ask_at=None), ()
                )
            return _paid(payment, charge, outcome, account_at=account_at, transaction_id=transaction_id)
        case rail.Failed():
            charge = _changed(
                charge,
                ChargeState.FAILED,
                failure_code=FailureCode(outcome.code),
                raw_code=outcome.raw_code,
                ended_at=account_at,
                ask_at=None,
            )
            return _came_to_nothing(payment, charge, account_at=account_at, clock_offset=clock_offset)
        case rail.Cancelled():
            charge = _changed(
                charge,
                ChargeState.CANCELLED,
                failure_code=FailureCode.CUSTOMER_DECLINED,
                raw_code=outcome.raw_code,
                ended_at=account_at,
                ask_at=None,
            )
            return _came_to_nothing(payment, charge, account_at=account_at, clock_offset=clock_offset)
        case rail.NotSent():
            return _not_sent(payment, charge, account_at=account_at, clock_offset=clock_offset)
        case rail.NotFound():
            heard_of_it = charge.prompted_at is not None or charge.confirmed_at is not None
            if account_at - charge.started_at >= _NOT_FOUND_PROVES_AFTER and not heard_of_it:
                return _not_sent(payment, charge, account_at=account_at, clock_offset=clock_offset)
            return Change(payment, _in_doubt(charge, at=at), ())
        case rail.Unknown():
            return Change(payment, _in_doubt(charge, at=at), ())
        case _:
            assert_never(outcome)


def _prompted(
    payment: Payment, charge: Charge, outcome: rail.AwaitingCustomer, *, at: datetime, account_at: datetime
) -> Change | None:
    if ChargeState.AWAITING_CUSTOMER not in CHARGE_CHANGES[charge.state]:
        return None
    first = charge.prompted_at is None
    charge = _changed(
        charge,
        ChargeState.AWAITING_CUSTOMER,
        prompted_at=charge.prompted_at or account_at,
        asked=0,
        ask_at=at + (outcome.news_after or _SILENCE_AT_MOST),
        rail_reference=outcome.rail_reference or charge.rail_reference,
    )
    return _told(payment, charge, EventType.PAYMENT_PENDING) if first else Change(payment, charge, ())


def _confirmed(
    payment: Payment, charge: Charge, outcome: rail.InProgress, *, at: datetime, account_at: datetime
) -> Change:
    first = charge.confirmed_at is None
    charge = _changed(
        charge,
        ChargeState.IN_PROGRESS,
        confirmed_at=charge.confirmed_at or account_at,
        asked=0,
        ask_at=at + (outcome.news_after or _SILENCE_AT_MOST),
        rail_reference=outcome.rail_reference or charge.rail_reference,
    )
    return _told(payment, charge, EventType.PAYMENT_PROCESSING) if first else Change(payment, charge, ())


def _told(payment: Payment, charge: Charge, event_type: EventType) -> Change:
    payment = replace(payment, sequence=payment.sequence + 1)
    return Change(payment, charge, ((event_type, payment),))


def _paid(
    payment: Payment, charge: Charge, outcome: rail.Succeeded, *, account_at: datetime, transaction_id: uuid.UUID
) -> Change:
    charge = _changed(
        charge,
        ChargeState.SUCCEEDED,
        ended_at=account_at,
        ask_at=None,
        rail_reference=outcome.rail_reference or charge.rail_reference,
    )
    payment, event_type = ended(payment, PaymentStatus.COMPLETED, at=account_at, transaction_id=transaction_id)
    return Change(payment, charge, ((event_type, payment),))


def _not_sent(payment: Payment, charge: Charge, *, account_at: datetime, clock_offset: timedelta) -> Change:
    charge = _changed(
        charge, ChargeState.FAILED, failure_code=FailureCode.PROVIDER_UNAVAILABLE, ended_at=account_at, ask_at=None
    )
    # It never left, so it is none of the five.
    payment = replace(payment, charges_sent=payment.charges_sent - 1)
    return _came_to_nothing(payment, charge, account_at=account_at, clock_offset=clock_offset)


def _came_to_nothing(payment: Payment, charge: Charge, *, account_at: datetime, clock_offset: timedelta) -> Change:
    """A charge ended without money. Somebody at a page may try again; a pushed one was the only try."""
    if charge.pushed and charge.state is ChargeState.CANCELLED:
        payment, event_type = ended(
            payment, PaymentStatus.CANCELLED, at=account_at, cancellation_reason=CancellationReason.CUSTOMER
        )
        return Change(payment, charge, ((event_type, payment),))
    if charge.pushed or payment.charges_sent >= CHARGES_MAX:
        payment, event_type = ended(payment, PaymentStatus.FAILED, at=account_at, failure_code=charge.failure_code)
        return Change(payment, charge, ((event_type, payment),))
    return Change(replace(payment, open_charge_id=None, due_at=payment.expires_at - clock_offset), charge, ())


def _in_doubt(charge: Charge, *, at: datetime) -> Charge:
    """Asked about on the decided schedule, counted from when it came in doubt; then an operator's."""
    asked = charge.asked + 1 if charge.state is ChargeState.IN_DOUBT else 0
    if asked >= len(DOUBT_SCHEDULE):
        return _changed(charge, ChargeState.NEEDS_REVIEW, ask_at=None)
    waited = DOUBT_SCHEDULE[asked - 1] if asked else timedelta(0)
    return _changed(charge, ChargeState.IN_DOUBT, asked=asked, ask_at=at + DOUBT_SCHEDULE[asked] - waited)


def _changed(charge: Charge, state: ChargeState, **values: Any) -> Charge:
    if state not in CHARGE_CHANGES[charge.state] and state is not charge.state:
        raise ValueError(f"a charge cannot go from {charge.state} to {state}")
    return replace(charge, state=state, **values)
