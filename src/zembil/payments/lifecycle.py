"""How payments and charges change: the tables, and what an outcome makes of both. Pure; docs/lifecycle.md draws it."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from zembil.ledger.model import EntryKind
from zembil.payments.model import CancellationReason, Charge, ChargeState, FailureCode, Payment, PaymentStatus
from zembil.rails import doubt, rail
from zembil.webhooks.model import EventType

CHARGES_MAX = 5

# Why money that came waits for an operator: `raw_code` of the charge.
AMOUNT_DIFFERS = "amount_differs"
RECEIPT_OF_ANOTHER = "receipt_of_another"

# What each change of a payment is told as.
PAYMENT_CHANGES: dict[tuple[PaymentStatus, PaymentStatus], EventType] = {
    (PaymentStatus.PENDING, PaymentStatus.COMPLETED): EventType.PAYMENT_COMPLETED,
    (PaymentStatus.PENDING, PaymentStatus.FAILED): EventType.PAYMENT_FAILED,
    (PaymentStatus.PENDING, PaymentStatus.CANCELLED): EventType.PAYMENT_CANCELLED,
    # Late money: the only way out of an end state.
    (PaymentStatus.FAILED, PaymentStatus.COMPLETED): EventType.PAYMENT_COMPLETED,
    (PaymentStatus.CANCELLED, PaymentStatus.COMPLETED): EventType.PAYMENT_COMPLETED,
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
_ENDED_STATES = frozenset({ChargeState.SUCCEEDED, ChargeState.FAILED, ChargeState.CANCELLED, ChargeState.SURPLUS})
_PAID_STATES = frozenset({ChargeState.SUCCEEDED, ChargeState.SURPLUS})

# Where a charge may go from each state. Once confirmed it never goes back to waiting; once ended only money moves it.
CHARGE_CHANGES: dict[ChargeState, frozenset[ChargeState]] = {
    ChargeState.SUBMITTING: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.AWAITING_CUSTOMER: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.IN_PROGRESS: _ENDED_STATES | {ChargeState.IN_PROGRESS, ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW},
    ChargeState.IN_DOUBT: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.NEEDS_REVIEW: frozenset(ChargeState) - {ChargeState.SUBMITTING},
    ChargeState.SUCCEEDED: frozenset(),
    ChargeState.SURPLUS: frozenset(),
    ChargeState.FAILED: _PAID_STATES,
    ChargeState.CANCELLED: _PAID_STATES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When something is decided, and what the decision may need to know."""

    at: datetime  # in the database's time; the account's is `at + clock_offset`
    clock_offset: timedelta
    transaction_id: uuid.UUID  # used if money came
    accepts_late_money: bool  # the account does, and no other payment has taken the reference
    receipt_is_anothers: bool = False  # the rail names a reference of its own that another charge has

    @property
    def account_at(self) -> datetime:
        return self.at + self.clock_offset


@dataclass(frozen=True, slots=True)
class Change:
    """What one step makes of a payment and its charge, and the events that tell of it, in order."""

    payment: Payment
    charge: Charge | None
    told: tuple[tuple[EventType, Payment], ...] = ()  # each with the payment as it was then
    entry_kind: EntryKind | None = None  # how it is booked


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


def withdrawn(payment: Payment, charge: Charge, *, at: datetime) -> Change | None:
    """The rail took back the prompt for the merchant who cancels; None if the customer or the end came first."""
    if charge.state not in (ChargeState.AWAITING_CUSTOMER, ChargeState.IN_DOUBT) or charge.confirmed_at is not None:
        return None
    charge = _changed(charge, ChargeState.CANCELLED, raw_code="withdrawn", ended_at=at, ask_at=None)
    return _with(charge, cancelled(payment, CancellationReason.MERCHANT, at=at))


def taken_back(payment: Payment, charge: Charge, *, at: datetime, clock_offset: timedelta) -> Change | None:
    """The rail took back the prompt so that the payer can be asked anew; None if the customer or the end came first."""
    if charge.state is not ChargeState.AWAITING_CUSTOMER or charge.confirmed_at is not None:
        return None
    charge = _changed(charge, ChargeState.CANCELLED, raw_code="withdrawn", ended_at=at, ask_at=None)
    return Change(replace(payment, open_charge_id=None, due_at=payment.expires_at - clock_offset), charge)


def charged(payment: Payment, charge: Charge) -> Payment:
    """The payment while this new charge may bring money: it does not expire meanwhile."""
    return replace(payment, open_charge_id=charge.id, charges_sent=payment.charges_sent + 1, due_at=None)


def after(payment: Payment, charge: Charge, outcome: rail.Outcome, *, now: Moment) -> Change | None:
    """What an outcome makes of a payment and a charge of it; None if it comes too late to change anything."""
    if isinstance(outcome, rail.Succeeded):
        return _money_came(payment, charge, outcome, now=now)
    if charge.state not in OPEN_STATES:
        return _no_late_money(payment, charge, outcome, now=now)
    if charge.received_santim is not None:
        return None  # money that came does not go away by what is said later; only other money is news
    match outcome:
        case rail.AwaitingCustomer():
            return _prompted(payment, charge, outcome, now=now)
        case rail.InProgress():
            return _confirmed(payment, charge, outcome, now=now)
        case rail.Failed():
            ask_at = now.at + outcome.news_after if outcome.news_after else None
            code = FailureCode.of(outcome.code)
            ended_charge = _ended(charge, ChargeState.FAILED, code, outcome.raw_code or outcome.code, now=now)
            return _came_to_nothing(payment, replace(ended_charge, ask_at=ask_at, asked=0), now=now)
        case rail.Cancelled():
            code = FailureCode.CUSTOMER_DECLINED
            return _came_to_nothing(
                payment, _ended(charge, ChargeState.CANCELLED, code, outcome.raw_code, now=now), now=now
            )
        case rail.NotSent() if not _was_known(charge):
            return _not_sent(payment, charge, now=now)
        case rail.NotFound() if not _was_known(charge) and _is_old(charge, now=now):
            return _not_sent(payment, charge, now=now)
        case rail.NotSent() | rail.NotFound() | rail.Unknown():
            return Change(payment, _in_doubt(charge, now=now))
        case _:
            assert_never(outcome)


def _was_known(charge: Charge) -> bool:
    """Whether the rail ever spoke of the charge: then it was sent, whatever is said of it later."""
    spoken_of = (charge.prompted_at, charge.confirmed_at, charge.rail_reference)
    return any(spoken_of) or charge.raw_code in (AMOUNT_DIFFERS, RECEIPT_OF_ANOTHER)


def _is_old(charge: Charge, *, now: Moment) -> bool:
    """Whether it began so long ago that a rail which does not know it has never got it."""
    return now.account_at - charge.started_at >= doubt.NOT_FOUND_PROVES_AFTER


def _money_came(payment: Payment, charge: Charge, outcome: rail.Succeeded, *, now: Moment) -> Change | None:
    """The first money completes a payment, also one that had failed or expired if its account takes late money.

    Money of another amount completes nothing: an operator sees to it while the charge is open, and afterwards whatever
    came is returned. Money with another charge's receipt is that charge's money, or the rail's mistake: an operator
    sees to it, and nothing is booked or returned of it twice.
    """
    is_exact = outcome.amount_santim == payment.amount_santim
    is_open = charge.state in OPEN_STATES
    if charge.state in _PAID_STATES or (not is_open and (outcome.amount_santim <= 0 or now.receipt_is_anothers)):
        return None
    reference = _reference(charge, outcome, now=now)
    if is_open and (now.receipt_is_anothers or not is_exact):
        why = RECEIPT_OF_ANOTHER if now.receipt_is_anothers else AMOUNT_DIFFERS
        is_ours = not now.receipt_is_anothers and outcome.amount_santim > 0
        doubtful = _changed(
            charge,
            ChargeState.NEEDS_REVIEW,
            raw_code=why,
            ask_at=None,
            rail_reference=reference,
            received_santim=outcome.amount_santim if is_ours else charge.received_santim,
        )
        return Change(payment, doubtful)
    received = replace(charge, ended_at=now.account_at, ask_at=None, rail_reference=reference, failure_code=None)
    if is_exact and (payment.status is PaymentStatus.PENDING or _is_late_money_welcome(payment, now=now)):
        paid = _changed(received, ChargeState.SUCCEEDED, received_santim=None)
        payment, event_type = ended(
            payment, PaymentStatus.COMPLETED, at=now.account_at, transaction_id=now.transaction_id
        )
        return Change(payment, paid, ((event_type, payment),), EntryKind.CHARGE_SUCCEEDED)
    surplus = _changed(received, ChargeState.SURPLUS, received_santim=outcome.amount_santim)
    return Change(payment, surplus, (), EntryKind.CHARGE_SURPLUS)


def set_apart(payment: Payment, charge: Charge, *, now: Moment) -> Change | None:
    """Another amount than was asked for, which an operator has seen, is booked as no payment's, to be returned.

    The charge has come to nothing for its payment. None if no such amount came.
    """
    if charge.state is not ChargeState.NEEDS_REVIEW or charge.received_santim is None:
        return None
    surplus = _changed(charge, ChargeState.SURPLUS, ended_at=now.account_at, ask_at=None)
    return replace(_came_to_nothing(payment, surplus, now=now), entry_kind=EntryKind.CHARGE_SURPLUS)


def _reference(
    charge: Charge, outcome: rail.AwaitingCustomer | rail.InProgress | rail.Succeeded, *, now: Moment
) -> str | None:
    """The rail's own reference of a charge, which no two charges have."""
    said = None if now.receipt_is_anothers else outcome.rail_reference
    return said or charge.rail_reference


def _is_late_money_welcome(payment: Payment, *, now: Moment) -> bool:
    ended_unpaid = payment.status is PaymentStatus.FAILED or payment.cancellation_reason is CancellationReason.EXPIRED
    return now.accepts_late_money and ended_unpaid


def _no_late_money(payment: Payment, charge: Charge, outcome: rail.Outcome, *, now: Moment) -> Change | None:
    """An ended charge stays as it ended; if its rail was asked whether money came after all, the question is settled.

    What a rail says of its own accord before the question is due changes nothing.
    """
    if charge.ask_at is None or charge.ask_at > now.at + doubt.SUBMITTING_AT_MOST:
        return None
    if isinstance(outcome, rail.Failed):
        ask_at = now.at + outcome.news_after if outcome.news_after else None
        return Change(payment, replace(charge, ask_at=ask_at))
    if isinstance(outcome, rail.Cancelled):
        return Change(payment, replace(charge, ask_at=None))
    asked = charge.asked + 1
    return Change(payment, replace(charge, asked=asked, ask_at=doubt.next_question(asked, at=now.at)))


def _prompted(payment: Payment, charge: Charge, outcome: rail.AwaitingCustomer, *, now: Moment) -> Change | None:
    if ChargeState.AWAITING_CUSTOMER not in CHARGE_CHANGES[charge.state]:
        return None
    prompted = _changed(
        charge,
        ChargeState.AWAITING_CUSTOMER,
        prompted_at=charge.prompted_at or now.account_at,
        asked=0,
        ask_at=now.at + (outcome.news_after or doubt.SILENCE_AT_MOST),
        rail_reference=_reference(charge, outcome, now=now),
    )
    return _told(payment, prompted, EventType.PAYMENT_PENDING, is_news=charge.prompted_at is None)


def _confirmed(payment: Payment, charge: Charge, outcome: rail.InProgress, *, now: Moment) -> Change:
    confirmed = _changed(
        charge,
        ChargeState.IN_PROGRESS,
        confirmed_at=charge.confirmed_at or now.account_at,
        asked=0,
        ask_at=now.at + (outcome.news_after or doubt.SILENCE_AT_MOST),
        rail_reference=_reference(charge, outcome, now=now),
    )
    return _told(payment, confirmed, EventType.PAYMENT_PROCESSING, is_news=charge.confirmed_at is None)


def _told(payment: Payment, charge: Charge, event_type: EventType, *, is_news: bool) -> Change:
    """The steps of a charge are told once each, and not of a payment that has ended."""
    if not is_news or payment.status is not PaymentStatus.PENDING:
        return Change(payment, charge)
    payment = replace(payment, sequence=payment.sequence + 1)
    return Change(payment, charge, ((event_type, payment),))


def _not_sent(payment: Payment, charge: Charge, *, now: Moment) -> Change:
    # It never left, so it is none of the five.
    payment = replace(payment, charges_sent=payment.charges_sent - 1)
    ended_charge = _ended(charge, ChargeState.FAILED, FailureCode.PROVIDER_UNAVAILABLE, None, now=now)
    return _came_to_nothing(payment, ended_charge, now=now)


def _came_to_nothing(payment: Payment, charge: Charge, *, now: Moment) -> Change:
    """A charge ended without money. Somebody at a page may try again; a pushed one was the only try."""
    if payment.status is not PaymentStatus.PENDING:
        return Change(payment, charge)
    if charge.pushed and charge.state is ChargeState.CANCELLED:
        return _with(charge, cancelled(payment, CancellationReason.CUSTOMER, at=now.account_at))
    if charge.pushed or payment.charges_sent >= CHARGES_MAX:
        return _with(charge, failed(payment, charge.failure_code or FailureCode.DECLINED, at=now.account_at))
    return Change(replace(payment, open_charge_id=None, due_at=payment.expires_at - now.clock_offset), charge)


def _with(charge: Charge, change: Change) -> Change:
    return replace(change, charge=charge)


def _in_doubt(charge: Charge, *, now: Moment) -> Charge:
    asked = charge.asked + 1 if charge.state is ChargeState.IN_DOUBT else 0
    ask_at = doubt.next_question(asked, at=now.at)
    state = ChargeState.NEEDS_REVIEW if ask_at is None else ChargeState.IN_DOUBT
    return _changed(charge, state, asked=asked, ask_at=ask_at)


def _ended(charge: Charge, state: ChargeState, code: FailureCode, raw_code: str | None, *, now: Moment) -> Charge:
    return _changed(charge, state, failure_code=code, raw_code=raw_code, ended_at=now.account_at, ask_at=None)


def _changed(charge: Charge, state: ChargeState, **values: Any) -> Charge:
    if state not in CHARGE_CHANGES[charge.state] and state is not charge.state:
        raise ValueError(f"a charge cannot go from {charge.state} to {state}")
    return replace(charge, state=state, **values)
