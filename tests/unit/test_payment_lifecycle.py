"""How payments and charges change: every outcome in every state, the doubt schedule, and the rules for five charges."""

import itertools
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from zembil import ids
from zembil.ledger.model import EntryKind
from zembil.payments import lifecycle
from zembil.payments.lifecycle import CHARGE_CHANGES, CHARGES_MAX, OPEN_STATES, PAYMENT_CHANGES, Change, Moment
from zembil.payments.model import CancellationReason, Charge, ChargeState, FailureCode, Payment, PaymentStatus
from zembil.rails.rail import (
    AwaitingCustomer,
    Cancelled,
    Failed,
    InProgress,
    NotFound,
    NotSent,
    Outcome,
    Succeeded,
    Unknown,
    Wallet,
)
from zembil.webhooks.model import EventType

STARTED_AT = datetime(2026, 11, 21, 9, 54, tzinfo=UTC)
AT = STARTED_AT + timedelta(seconds=30)
NO_OFFSET = timedelta(0)
TRANSACTION_ID = uuid.UUID(int=7)
CHARGE_ID = ids.id_at(STARTED_AT)
UNPAID = frozenset({ChargeState.FAILED, ChargeState.CANCELLED})
PAID = frozenset({ChargeState.SUCCEEDED, ChargeState.SURPLUS})
ENDED = UNPAID | PAID

PAYMENT = Payment(
    account_id=1,
    id=ids.id_at(STARTED_AT),
    amount_santim=10_000,
    expires_at=STARTED_AT + timedelta(hours=1),
    link_secret=bytes(16),
    open_charge_id=CHARGE_ID,
    charges_sent=1,
)


def charge_in(state: ChargeState, *, pushed: bool = False) -> Charge:
    """A charge as it is after it came to this state."""
    heard = state not in (ChargeState.SUBMITTING, ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW)
    confirmed = state in PAID or state is ChargeState.IN_PROGRESS
    return Charge(
        account_id=1,
        id=CHARGE_ID,
        payment_id=PAYMENT.id,
        rail=Wallet.TELEBIRR,
        phone="+251911223344",
        pushed=pushed,
        state=state,
        prompted_at=STARTED_AT if heard else None,
        confirmed_at=STARTED_AT if confirmed else None,
        ended_at=STARTED_AT if state in ENDED else None,
        ask_at=None if state in ENDED or state is ChargeState.NEEDS_REVIEW else AT,
        received_santim=10_000 if state is ChargeState.SURPLUS else None,
    )


def moment(*, at: datetime = AT, offset: timedelta = NO_OFFSET, accepts_late_money: bool = True) -> Moment:
    return Moment(at=at, clock_offset=offset, transaction_id=TRANSACTION_ID, accepts_late_money=accepts_late_money)


def after(
    charge: Charge,
    outcome: Outcome,
    *,
    payment: Payment = PAYMENT,
    at: datetime = AT,
    offset: timedelta = NO_OFFSET,
    accepts_late_money: bool = True,
) -> Change | None:
    now = moment(at=at, offset=offset, accepts_late_money=accepts_late_money)
    return lifecycle.after(payment, charge, outcome, now=now)


def changed(
    charge: Charge, outcome: Outcome, *, payment: Payment = PAYMENT, at: datetime = AT
) -> tuple[Payment, Charge]:
    change = after(charge, outcome, payment=payment, at=at)
    assert change is not None
    assert change.charge is not None
    return change.payment, change.charge


def told(change: Change | None) -> list[EventType]:
    assert change is not None
    return [event_type for event_type, _ in change.told]


OUTCOMES: dict[str, Outcome] = {
    "awaiting": AwaitingCustomer("R1"),
    "in progress": InProgress("R1"),
    "succeeded": Succeeded(10_000, "R1"),
    "succeeded, another amount": Succeeded(9_999, "R1"),
    "failed": Failed("insufficient_funds", "E1"),
    "cancelled": Cancelled("E2"),
    "not sent": NotSent("refused"),
    "not found": NotFound(),
    "unknown": Unknown("silence"),
}
S, A, P, D, R = (
    ChargeState.SUBMITTING,
    ChargeState.AWAITING_CUSTOMER,
    ChargeState.IN_PROGRESS,
    ChargeState.IN_DOUBT,
    ChargeState.NEEDS_REVIEW,
)
# What each outcome makes of a charge, 30 seconds after it began: by the state it was in. None: nothing changes.
BECOMES: dict[str, dict[ChargeState, ChargeState | None]] = {
    "awaiting": {S: A, A: A, P: None, D: A, R: A},
    "in progress": dict.fromkeys((S, A, P, D, R), P),
    "succeeded": dict.fromkeys((S, A, P, D, R), ChargeState.SUCCEEDED),
    "succeeded, another amount": dict.fromkeys((S, A, P, D, R), R),
    "failed": dict.fromkeys((S, A, P, D, R), ChargeState.FAILED),
    "cancelled": dict.fromkeys((S, A, P, D, R), ChargeState.CANCELLED),
    "not sent": {S: ChargeState.FAILED, A: D, P: D, D: ChargeState.FAILED, R: ChargeState.FAILED},
    "not found": dict.fromkeys((S, A, P, D, R), D),
    "unknown": dict.fromkeys((S, A, P, D, R), D),
}


@pytest.mark.parametrize("state", list(ChargeState))
@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_makes_of_a_charge_what_the_table_says(name: str, state: ChargeState) -> None:
    change = after(charge_in(state), OUTCOMES[name])
    if state in PAID or (state in UNPAID and not name.startswith("succeeded")):
        assert change is None
        return
    if state in UNPAID:
        assert change is not None
        assert change.charge is not None
        assert change.charge.state in CHARGE_CHANGES[state]
        return
    becomes = BECOMES[name][state]
    if becomes is None:
        assert change is None
        return
    assert change is not None
    assert change.charge is not None
    assert change.charge.state is becomes
    assert becomes is state or becomes in CHARGE_CHANGES[state]
    # What the tables of the database demand of a row.
    assert (change.charge.ended_at is not None) == (becomes in ENDED)
    assert change.charge.ask_at is None or becomes not in ENDED
    assert (change.payment.status is PaymentStatus.PENDING) == (change.payment.ended_at is None)
    assert (change.payment.status is PaymentStatus.COMPLETED) == (change.payment.transaction_id is not None)
    assert change.payment.open_charge_id is None or change.payment.due_at is None
    assert (change.payment.open_charge_id is None) == (becomes in ENDED)


def test_the_tables_name_every_state_and_an_end_is_an_end() -> None:
    assert CHARGE_CHANGES.keys() == set(ChargeState)
    assert {state for state, following in CHARGE_CHANGES.items() if not following} == PAID
    assert {state for state, following in CHARGE_CHANGES.items() if following == PAID} == UNPAID
    assert set(ChargeState) - ENDED == OPEN_STATES
    assert BECOMES.keys() == OUTCOMES.keys()
    assert all(row.keys() == OPEN_STATES for row in BECOMES.values())
    assert all(ChargeState.SUBMITTING not in following for following in CHARGE_CHANGES.values())
    assert ChargeState.AWAITING_CUSTOMER not in CHARGE_CHANGES[ChargeState.IN_PROGRESS]


def test_a_payment_leaves_pending_and_only_late_money_leaves_another_state() -> None:
    ends = set(PaymentStatus) - {PaymentStatus.PENDING}
    assert {status for was, status in PAYMENT_CHANGES if was is PaymentStatus.PENDING} == ends
    late = {change for change in PAYMENT_CHANGES if change[0] is not PaymentStatus.PENDING}
    assert late == {(was, PaymentStatus.COMPLETED) for was in (PaymentStatus.FAILED, PaymentStatus.CANCELLED)}
    assert {(status, event) for (_, status), event in PAYMENT_CHANGES.items()} == {
        (status, EventType(f"payment.{status.value}")) for status in ends
    }


@pytest.mark.parametrize(("was", "status"), list(itertools.product(PaymentStatus, PaymentStatus)))
def test_a_change_that_is_not_in_the_table_is_a_bug(was: PaymentStatus, status: PaymentStatus) -> None:
    if (was, status) in PAYMENT_CHANGES:
        assert lifecycle.ended(replace(PAYMENT, status=was), status, at=AT)[0].status is status
    else:
        with pytest.raises(KeyError):
            lifecycle.ended(replace(PAYMENT, status=was), status, at=AT)


def test_a_paid_payment_is_told_as_completed() -> None:
    change = after(charge_in(P), Succeeded(10_000, "R9"), offset=timedelta(days=1))
    assert told(change) == [EventType.PAYMENT_COMPLETED]
    assert change is not None
    assert change.charge is not None
    assert change.charge.rail_reference == "R9"
    assert change.payment.status is PaymentStatus.COMPLETED
    assert change.payment.transaction_id == TRANSACTION_ID
    assert change.payment.ended_at == change.charge.ended_at == AT + timedelta(days=1)
    assert change.payment.sequence == PAYMENT.sequence + 1
    assert change.told[0][1] == change.payment


def test_money_of_another_amount_completes_nothing() -> None:
    for santim in (9_999, 10_001, 0, 1_000_000):
        change = after(charge_in(P), Succeeded(santim))
        assert told(change) == []
        assert change is not None
        assert change.charge is not None
        assert change.payment == PAYMENT
        assert (change.charge.raw_code, change.charge.ask_at) == ("amount_differs", None)
        assert change.charge.received_santim == (santim or None)


def other_amount_came(*, pushed: bool = False, charges_sent: int = 1) -> tuple[Payment, Charge]:
    payment = replace(PAYMENT, charges_sent=charges_sent)
    return changed(charge_in(P, pushed=pushed), Succeeded(5_000), payment=payment)


@pytest.mark.parametrize(
    "later",
    [Failed("declined"), Cancelled(), AwaitingCustomer(), InProgress(), NotFound(), NotSent("cut"), Unknown("cut")],
)
def test_another_amount_that_came_stays_the_operators_whatever_the_rail_says_later(later: Outcome) -> None:
    payment, charge = other_amount_came()
    assert after(charge, later, payment=payment, at=STARTED_AT + timedelta(hours=2)) is None


def test_of_two_words_of_money_the_last_counts() -> None:
    payment, charge = other_amount_came()
    payment, charge = changed(charge, Succeeded(7_000), payment=payment)
    assert (payment.status, charge.received_santim) == (PaymentStatus.PENDING, 7_000)
    change = after(charge, Succeeded(10_000), payment=payment)
    assert change is not None
    assert change.charge is not None
    assert (change.payment.status, change.entry_kind) == (PaymentStatus.COMPLETED, EntryKind.CHARGE_SUCCEEDED)
    assert (change.charge.state, change.charge.received_santim) == (ChargeState.SUCCEEDED, None)


@pytest.mark.parametrize(
    ("pushed", "charges_sent", "status"),
    [(False, 1, PaymentStatus.PENDING), (False, CHARGES_MAX, PaymentStatus.FAILED), (True, 1, PaymentStatus.FAILED)],
    ids=["at the page", "the fifth", "pushed"],
)
def test_another_amount_that_is_set_apart_is_booked_as_surplus_and_its_charge_came_to_nothing(
    pushed: bool, charges_sent: int, status: PaymentStatus
) -> None:
    payment, charge = other_amount_came(pushed=pushed, charges_sent=charges_sent)
    change = lifecycle.set_apart(payment, charge, now=moment())
    assert change is not None
    assert change.charge is not None
    assert (change.charge.state, change.charge.received_santim) == (ChargeState.SURPLUS, 5_000)
    assert (change.charge.ended_at, change.entry_kind) == (AT, EntryKind.CHARGE_SURPLUS)
    assert (change.payment.status, change.payment.open_charge_id) == (status, None)
    assert told(change) == ([] if status is PaymentStatus.PENDING else [EventType.PAYMENT_FAILED])


@pytest.mark.parametrize("state", list(ChargeState))
def test_nothing_is_set_apart_where_no_other_amount_came(state: ChargeState) -> None:
    assert lifecycle.set_apart(PAYMENT, charge_in(state), now=moment()) is None


@pytest.mark.parametrize("state", list(ChargeState))
def test_money_with_another_charges_receipt_is_neither_booked_nor_returned(state: ChargeState) -> None:
    now = replace(moment(), receipt_is_anothers=True)
    change = lifecycle.after(PAYMENT, charge_in(state), Succeeded(10_000, "R1"), now=now)
    if state in ENDED:
        assert change is None
        return
    assert change is not None
    assert change.charge is not None
    assert (change.payment, change.told, change.entry_kind) == (PAYMENT, (), None)
    assert (change.charge.state, change.charge.raw_code) == (ChargeState.NEEDS_REVIEW, "receipt_of_another")
    assert (change.charge.rail_reference, change.charge.ask_at) == (None, None)


@pytest.mark.parametrize("outcome", [AwaitingCustomer("R1"), InProgress("R1")])
def test_news_under_another_charges_reference_is_news_all_the_same(outcome: Outcome) -> None:
    plain = after(charge_in(S), outcome)
    change = lifecycle.after(PAYMENT, charge_in(S), outcome, now=replace(moment(), receipt_is_anothers=True))
    assert told(change) == told(plain)
    assert change is not None
    assert change.charge is not None
    assert change.charge.rail_reference is None


def test_prompting_and_confirming_are_each_told_once() -> None:
    first = after(charge_in(S), AwaitingCustomer())
    assert told(first) == [EventType.PAYMENT_PENDING]
    assert first is not None
    assert first.charge is not None
    again = after(first.charge, AwaitingCustomer(), payment=first.payment)
    assert told(again) == []
    confirmed = after(first.charge, InProgress(), payment=first.payment)
    assert told(confirmed) == [EventType.PAYMENT_PROCESSING]
    assert confirmed is not None
    assert confirmed.charge is not None
    assert told(after(confirmed.charge, InProgress(), payment=confirmed.payment)) == []
    # A late word of the prompt takes nothing back.
    assert after(confirmed.charge, AwaitingCustomer(), payment=confirmed.payment) is None
    assert (first.payment.sequence, confirmed.payment.sequence) == (2, 3)


@pytest.mark.parametrize(("news_after", "seconds"), [(None, 30), (timedelta(seconds=2), 2)])
def test_a_silent_rail_is_asked_when_it_is_worth_it(news_after: timedelta | None, seconds: int) -> None:
    for outcome in (AwaitingCustomer(news_after=news_after), InProgress(news_after=news_after)):
        _, charge = changed(charge_in(S), outcome)
        assert charge.ask_at == AT + timedelta(seconds=seconds)


# Doubt.

SCHEDULE = [5, 10, 20, 40, 60, 2 * 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600]


@pytest.mark.parametrize("state", [S, A, P])
def test_a_charge_in_doubt_is_asked_about_on_the_schedule_and_then_is_an_operators(state: ChargeState) -> None:
    payment, charge = changed(charge_in(state), Unknown("cut"))
    asked_after: list[float] = []
    while charge.state is ChargeState.IN_DOUBT:
        assert charge.ask_at is not None
        asked_after.append((charge.ask_at - AT).total_seconds())
        payment, charge = changed(charge, Unknown("still"), payment=payment, at=charge.ask_at)
    assert asked_after == SCHEDULE
    assert (charge.state, charge.ask_at) == (ChargeState.NEEDS_REVIEW, None)
    assert payment == PAYMENT  # neither failed nor free for another prompt


def test_news_ends_the_doubt_and_a_new_doubt_begins_anew() -> None:
    payment, charge = changed(charge_in(S), Unknown("cut"))
    for _ in range(3):
        assert charge.ask_at is not None
        payment, charge = changed(charge, Unknown("still"), payment=payment, at=charge.ask_at)
    assert charge.asked == 3
    payment, charge = changed(charge, AwaitingCustomer(), payment=payment)
    payment, charge = changed(charge, Unknown("cut"), payment=payment)
    assert (charge.asked, charge.ask_at) == (0, AT + timedelta(seconds=5))


@pytest.mark.parametrize("seconds", [0, 59.9])
@pytest.mark.parametrize("state", [S, D])
def test_soon_after_the_call_not_found_proves_nothing(state: ChargeState, seconds: float) -> None:
    payment, charge = changed(charge_in(state), NotFound(), at=STARTED_AT + timedelta(seconds=seconds))
    assert charge.state is ChargeState.IN_DOUBT
    assert payment == PAYMENT


@pytest.mark.parametrize("state", [S, D, R])
def test_a_minute_later_not_found_is_not_sent(state: ChargeState) -> None:
    payment, charge = changed(charge_in(state), NotFound(), at=STARTED_AT + timedelta(seconds=60))
    assert (charge.state, charge.failure_code) == (ChargeState.FAILED, FailureCode.PROVIDER_UNAVAILABLE)
    assert (payment.status, payment.charges_sent, payment.open_charge_id) == (PaymentStatus.PENDING, 0, None)


@pytest.mark.parametrize("later", [NotFound(), NotSent("no connection")])
@pytest.mark.parametrize("state", [A, P])
@pytest.mark.parametrize("doubted", [False, True])
def test_a_charge_that_the_rail_once_knew_was_sent_whatever_it_says_later(
    state: ChargeState, doubted: bool, later: Outcome
) -> None:
    payment, charge = PAYMENT, charge_in(state)
    if doubted:
        payment, charge = changed(charge, Unknown("cut"))
    payment, charge = changed(charge, later, payment=payment, at=STARTED_AT + timedelta(hours=2))
    assert charge.state is ChargeState.IN_DOUBT
    assert payment == PAYMENT


@pytest.mark.parametrize("later", [NotFound(), NotSent("no connection")])
def test_a_charge_of_which_the_rail_named_a_success_was_sent_whatever_it_says_later(later: Outcome) -> None:
    payment, charge = changed(charge_in(S), Succeeded(0))
    payment, charge = changed(charge, later, payment=payment, at=STARTED_AT + timedelta(hours=2))
    assert charge.state is ChargeState.IN_DOUBT
    assert payment == PAYMENT


# A charge that comes to nothing.

NOTHING: list[tuple[Outcome, FailureCode]] = [
    *((Failed(code.value), code) for code in FailureCode),
    (Cancelled(), FailureCode.CUSTOMER_DECLINED),
]


@pytest.mark.parametrize(("outcome", "code"), NOTHING)
def test_on_the_page_the_payer_may_try_again(outcome: Outcome, code: FailureCode) -> None:
    offset = timedelta(days=2)
    change = after(charge_in(A), outcome, offset=offset)
    assert told(change) == []
    assert change is not None
    assert change.charge is not None
    assert change.charge.failure_code is code
    payment = change.payment
    assert (payment.status, payment.open_charge_id, payment.charges_sent) == (PaymentStatus.PENDING, None, 1)
    assert payment.due_at == PAYMENT.expires_at - offset  # it expires again, by the database's clock


@pytest.mark.parametrize(("outcome", "code"), NOTHING)
def test_the_fifth_charge_without_success_fails_the_payment_with_its_code(outcome: Outcome, code: FailureCode) -> None:
    for sent in range(1, CHARGES_MAX + 1):
        change = after(charge_in(A), outcome, payment=replace(PAYMENT, charges_sent=sent))
        assert change is not None
        if sent < 5:
            assert change.payment.status is PaymentStatus.PENDING
        else:
            assert (change.payment.status, change.payment.failure_code) == (PaymentStatus.FAILED, code)
            assert told(change) == [EventType.PAYMENT_FAILED]


def test_a_charge_that_never_left_is_none_of_the_five() -> None:
    for sent in range(1, CHARGES_MAX + 1):
        payment, charge = changed(charge_in(S), NotSent("no connection"), payment=replace(PAYMENT, charges_sent=sent))
        assert charge.failure_code is FailureCode.PROVIDER_UNAVAILABLE
        assert (payment.status, payment.charges_sent) == (PaymentStatus.PENDING, sent - 1)


@pytest.mark.parametrize("code", list(FailureCode))
def test_a_pushed_prompt_that_fails_fails_the_payment_at_once(code: FailureCode) -> None:
    change = after(charge_in(A, pushed=True), Failed(code.value, "raw"))
    assert told(change) == [EventType.PAYMENT_FAILED]
    assert change is not None
    assert change.charge is not None
    assert (change.payment.failure_code, change.charge.raw_code) == (code, "raw")


@pytest.mark.parametrize(("raw_code", "kept"), [(None, "E-77"), ("SVC0403", "SVC0403")])
def test_a_no_in_a_word_that_nobody_knows_is_a_no_all_the_same(raw_code: str | None, kept: str) -> None:
    payment, charge = changed(charge_in(A, pushed=True), Failed("E-77", raw_code))
    assert (payment.status, payment.failure_code) == (PaymentStatus.FAILED, FailureCode.PROVIDER_REJECTED)
    assert (charge.state, charge.failure_code) == (ChargeState.FAILED, FailureCode.PROVIDER_REJECTED)
    assert charge.raw_code == kept


def test_a_pushed_prompt_that_could_not_be_sent_fails_the_payment_at_once() -> None:
    payment, _ = changed(charge_in(S, pushed=True), NotSent("no connection"))
    assert (payment.status, payment.failure_code) == (PaymentStatus.FAILED, FailureCode.PROVIDER_UNAVAILABLE)


def test_a_pushed_prompt_that_is_declined_cancels_the_payment() -> None:
    change = after(charge_in(A, pushed=True), Cancelled())
    assert told(change) == [EventType.PAYMENT_CANCELLED]
    assert change is not None
    assert change.payment.cancellation_reason is CancellationReason.CUSTOMER
    assert change.payment.failure_code is None


def test_a_pushed_prompt_in_doubt_fails_nothing() -> None:
    for outcome in (Unknown("cut"), NotFound()):
        payment, charge = changed(charge_in(S, pushed=True), outcome)
        assert (payment, charge.state) == (PAYMENT, ChargeState.IN_DOUBT)


# What happens without a rail.

WAITING = replace(PAYMENT, open_charge_id=None, charges_sent=0, due_at=PAYMENT.expires_at)


def test_a_new_charge_keeps_its_payment_from_expiring() -> None:
    charged = lifecycle.charged(WAITING, charge_in(S))
    assert (charged.open_charge_id, charged.due_at, charged.charges_sent) == (CHARGE_ID, None, 1)
    assert charged.status is PaymentStatus.PENDING


@pytest.mark.parametrize("reason", list(CancellationReason))
def test_a_cancelled_payment_says_why(reason: CancellationReason) -> None:
    change = lifecycle.cancelled(WAITING, reason, at=AT)
    assert told(change) == [EventType.PAYMENT_CANCELLED]
    assert (change.payment.status, change.payment.cancellation_reason) == (PaymentStatus.CANCELLED, reason)
    assert (change.payment.ended_at, change.payment.due_at, change.payment.sequence) == (AT, None, 2)


def test_an_expired_payment_is_cancelled_whatever_its_last_charge_said() -> None:
    change = lifecycle.expired(replace(WAITING, charges_sent=4), at=AT)
    assert change.payment.cancellation_reason is CancellationReason.EXPIRED
    assert change.payment.failure_code is None
    assert told(change) == [EventType.PAYMENT_CANCELLED]


def test_a_failed_payment_says_why() -> None:
    change = lifecycle.failed(WAITING, FailureCode.PAYER_BUSY, at=AT)
    assert (change.payment.status, change.payment.failure_code) == (PaymentStatus.FAILED, FailureCode.PAYER_BUSY)
    assert told(change) == [EventType.PAYMENT_FAILED]


# Late money.

FAILED = lifecycle.failed(WAITING, FailureCode.TIMEOUT, at=AT).payment
EXPIRED = lifecycle.expired(WAITING, at=AT).payment
BY_MERCHANT = lifecycle.cancelled(WAITING, CancellationReason.MERCHANT, at=AT).payment
BY_CUSTOMER = lifecycle.cancelled(WAITING, CancellationReason.CUSTOMER, at=AT).payment
LATER = AT + timedelta(hours=2)


@pytest.mark.parametrize("payment", [FAILED, EXPIRED], ids=["failed", "expired"])
@pytest.mark.parametrize("state", [ChargeState.FAILED, ChargeState.CANCELLED, D])
def test_late_money_completes_a_payment_that_had_failed_or_expired(payment: Payment, state: ChargeState) -> None:
    change = after(charge_in(state), Succeeded(10_000, "R9"), payment=payment, at=LATER)
    assert told(change) == [EventType.PAYMENT_COMPLETED]
    assert change is not None
    assert change.charge is not None
    assert (change.charge.state, change.charge.failure_code) == (ChargeState.SUCCEEDED, None)
    assert change.entry_kind is EntryKind.CHARGE_SUCCEEDED
    completed = change.payment
    assert (completed.status, completed.ended_at) == (PaymentStatus.COMPLETED, LATER)
    assert (completed.failure_code, completed.cancellation_reason) == (None, None)
    assert completed.sequence == payment.sequence + 1


def test_a_charge_that_had_failed_still_completes_a_payment_that_waits_for_another_try() -> None:
    change = after(charge_in(ChargeState.FAILED), Succeeded(10_000), payment=replace(WAITING, charges_sent=1))
    assert told(change) == [EventType.PAYMENT_COMPLETED]
    assert change is not None
    assert (change.payment.due_at, change.payment.open_charge_id) == (None, None)


@pytest.mark.parametrize(
    ("payment", "accepts"),
    [(BY_MERCHANT, True), (BY_CUSTOMER, True), (FAILED, False), (EXPIRED, False)],
    ids=["cancelled by the merchant", "cancelled by the customer", "failed, to be refunded", "expired, to be refunded"],
)
@pytest.mark.parametrize("santim", [10_000, 9_999])
def test_money_that_nobody_waits_for_is_surplus(payment: Payment, accepts: bool, santim: int) -> None:
    change = after(
        charge_in(ChargeState.FAILED), Succeeded(santim), payment=payment, accepts_late_money=accepts, at=LATER
    )
    demand_surplus(change, payment, santim)


def demand_surplus(change: Change | None, payment: Payment, santim: int) -> None:
    assert told(change) == []
    assert change is not None
    assert change.charge is not None
    assert change.payment == payment
    assert (change.charge.state, change.charge.received_santim) == (ChargeState.SURPLUS, santim)
    assert change.entry_kind is EntryKind.CHARGE_SURPLUS
    assert (change.charge.ended_at is None, change.charge.ask_at) == (False, None)


def test_of_two_charges_that_succeed_the_second_is_surplus_also_if_it_was_still_open() -> None:
    first = after(
        charge_in(ChargeState.FAILED), Succeeded(10_000), payment=replace(PAYMENT, open_charge_id=ids.id_at(AT))
    )
    assert first is not None
    assert (first.payment.status, first.payment.open_charge_id) == (PaymentStatus.COMPLETED, None)
    second = replace(charge_in(A), id=ids.id_at(AT))
    confirmed = after(second, InProgress(), payment=first.payment)
    assert told(confirmed) == []  # nothing more is told of a payment that has ended
    demand_surplus(after(second, Succeeded(10_000), payment=first.payment), first.payment, 10_000)
    nothing = after(second, Failed("wrong_pin"), payment=first.payment)
    assert nothing is not None
    assert nothing.payment == first.payment


@pytest.mark.parametrize("payment", [FAILED, EXPIRED, replace(WAITING, charges_sent=1)])
def test_late_money_of_another_amount_completes_nothing_and_is_returned(payment: Payment) -> None:
    demand_surplus(after(charge_in(ChargeState.FAILED), Succeeded(10_001), payment=payment), payment, 10_001)
    assert after(charge_in(ChargeState.FAILED), Succeeded(0), payment=payment) is None


@pytest.mark.parametrize("state", [ChargeState.SUCCEEDED, ChargeState.SURPLUS])
def test_a_success_that_is_told_twice_is_one(state: ChargeState) -> None:
    completed = replace(PAYMENT, status=PaymentStatus.COMPLETED)
    assert after(charge_in(state), Succeeded(10_000), payment=completed) is None


def test_a_time_out_that_money_may_overtake_is_asked_about_once_more_and_then_settled() -> None:
    payment, charge = changed(charge_in(A), Failed("timeout", news_after=timedelta(hours=1)))
    assert (charge.state, charge.ask_at) == (ChargeState.FAILED, AT + timedelta(hours=1))
    assert after(charge, Failed("timeout"), payment=payment) is None  # a word of its own accord, before that
    due = AT + timedelta(hours=1)
    claimed = replace(charge, ask_at=due + timedelta(seconds=15))
    for outcome in (Failed("timeout"), Cancelled()):
        assert changed(claimed, outcome, payment=payment, at=due)[1].ask_at is None
    asked = 0
    while claimed.ask_at is not None:
        _, claimed = changed(claimed, Unknown("silence"), payment=payment, at=claimed.ask_at)
        asked += 1
    assert asked == len(SCHEDULE)
    assert claimed.state is ChargeState.FAILED


# Taking back a prompt.


@pytest.mark.parametrize("state", list(ChargeState))
def test_only_a_prompt_that_nobody_has_confirmed_can_be_taken_back(state: ChargeState) -> None:
    change = lifecycle.withdrawn(PAYMENT, charge_in(state), at=AT)
    if state not in (A, D):
        assert change is None
        return
    assert told(change) == [EventType.PAYMENT_CANCELLED]
    assert change is not None
    assert change.charge is not None
    assert (change.charge.state, change.charge.ask_at) == (ChargeState.CANCELLED, None)
    assert change.payment.cancellation_reason is CancellationReason.MERCHANT
    assert lifecycle.withdrawn(PAYMENT, replace(charge_in(D), confirmed_at=AT), at=AT) is None
