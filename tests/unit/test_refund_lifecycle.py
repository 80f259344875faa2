"""How refunds change: every outcome in every state, the doubt schedule, and that none is sent twice."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from zembil import ids
from zembil.ledger.model import EntryKind
from zembil.rails import doubt
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
)
from zembil.refunds import lifecycle
from zembil.refunds.lifecycle import CHANGES, Change
from zembil.refunds.model import SENT_STATES, Refund, RefundState, RefundStatus
from zembil.webhooks.model import EventType

APPROVED_AT = datetime(2026, 11, 21, 9, 54, tzinfo=UTC)
AT = APPROVED_AT + timedelta(seconds=30)
OFFSET = timedelta(days=2)


def refund_in(state: RefundState, *, taken: bool = False) -> Refund:
    decided = state is not RefundState.PENDING_APPROVAL
    return Refund(
        account_id=1,
        id=ids.id_at(APPROVED_AT),
        payment_id=uuid.UUID(int=1),
        charge_id=uuid.UUID(int=2),
        amount_santim=5_000,
        requested_by="usr_1",
        state=state,
        approved_by="usr_2" if decided else None,
        approved_at=APPROVED_AT + OFFSET if decided else None,
        submitted_at=APPROVED_AT + OFFSET if state in SENT_STATES else None,
        taken_at=APPROVED_AT + OFFSET if taken else None,
        sequence=2 if decided else 1,
    )


def after(refund: Refund, outcome: Outcome, *, at: datetime = AT, has_room: bool = True) -> Change | None:
    return lifecycle.after(refund, outcome, at=at, clock_offset=OFFSET, has_room=has_room)


def changed(refund: Refund, outcome: Outcome, *, at: datetime = AT) -> Refund:
    change = after(refund, outcome, at=at)
    assert change is not None
    return change.refund


OUTCOMES: list[tuple[Outcome, RefundState, EventType | None]] = [
    (AwaitingCustomer("R1"), RefundState.IN_PROGRESS, None),
    (InProgress("R1"), RefundState.IN_PROGRESS, None),
    (Succeeded(5_000, "R1"), RefundState.COMPLETED, EventType.REFUND_COMPLETED),
    (Succeeded(4_999, "R1"), RefundState.NEEDS_REVIEW, None),
    (Failed("provider_rejected", "E1"), RefundState.FAILED, EventType.REFUND_FAILED),
    (Cancelled("E2"), RefundState.FAILED, EventType.REFUND_FAILED),
    (Unknown("silence"), RefundState.IN_DOUBT, None),
    (NotFound(), RefundState.IN_DOUBT, None),
]


@pytest.mark.parametrize("state", list(RefundState))
@pytest.mark.parametrize(("outcome", "becomes", "told"), OUTCOMES)
def test_an_outcome_changes_only_what_was_sent(
    state: RefundState, outcome: Outcome, becomes: RefundState, told: EventType | None
) -> None:
    change = after(refund_in(state), outcome)
    if state not in SENT_STATES:
        assert change is None
        return
    assert change is not None
    assert (change.refund.state, change.event_type) == (becomes, told)
    assert change.refund.sequence == 2 + (told is not None)
    assert (change.entry_kind is None) == (told is None)
    # What the table of the database demands of a row.
    assert (change.refund.completed_at is not None) == (becomes is RefundState.COMPLETED)
    assert (change.refund.failure_code is not None) == (becomes is RefundState.FAILED)
    ends = becomes in (RefundState.COMPLETED, RefundState.FAILED, RefundState.NEEDS_REVIEW)
    assert (change.refund.ask_at is None) == ends


def test_merchants_see_approved_until_the_rail_has_told_the_end() -> None:
    assert {refund_in(state).status for state in SENT_STATES} == {RefundStatus.APPROVED}
    assert {refund_in(state).status for state in RefundState} == set(RefundStatus)


def test_a_refund_is_approved_to_be_sent_at_once() -> None:
    pending = refund_in(RefundState.PENDING_APPROVAL)
    change = lifecycle.approved(pending, by="usr_2", self_approval=False, at=AT + OFFSET, send_at=AT)
    assert (change.refund.state, change.refund.ask_at) == (RefundState.APPROVED, AT)
    assert (change.event_type, change.entry_kind) == (EventType.REFUND_APPROVED, EntryKind.REFUND_APPROVED)
    assert change.refund.approved_at == AT + OFFSET


def test_a_rejected_refund_says_why_and_books_nothing() -> None:
    change = lifecycle.rejected(refund_in(RefundState.PENDING_APPROVAL), message="No.")
    assert (change.refund.failure_code, change.refund.failure_message) == ("rejected", "No.")
    assert (change.event_type, change.entry_kind) == (EventType.REFUND_FAILED, None)
    assert lifecycle.rejected(refund_in(RefundState.PENDING_APPROVAL), message=None).refund.failure_message


@pytest.mark.parametrize("state", [state for state in RefundState if state is not RefundState.PENDING_APPROVAL])
def test_what_is_decided_is_not_decided_again(state: RefundState) -> None:
    with pytest.raises(KeyError):
        lifecycle.approved(refund_in(state), by="usr_2", self_approval=False, at=AT, send_at=AT)
    with pytest.raises(KeyError):
        lifecycle.rejected(refund_in(state), message=None)


def failed_refund() -> Refund:
    """A refund that was sent, and of which the rail said no."""
    return changed(refund_in(RefundState.SUBMITTING), Failed("provider_rejected", "E1"))


def test_money_that_went_although_the_rail_had_said_no_is_counted_where_there_is_room() -> None:
    change = after(failed_refund(), Succeeded(5_000, "R1"))
    assert change is not None
    assert (change.event_type, change.entry_kind) == (EventType.REFUND_COMPLETED, EntryKind.REFUND_COMPLETED_LATE)
    done = change.refund
    assert (done.state, done.completed_at, done.late_success_at) == (RefundState.COMPLETED, AT + OFFSET, AT + OFFSET)
    assert (done.failure_code, done.failure_message, done.rail_reference) == (None, None, "R1")


@pytest.mark.parametrize(("santim", "has_room"), [(5_000, False), (4_999, True)])
def test_money_that_went_late_and_cannot_be_counted_is_remembered_for_an_operator(santim: int, has_room: bool) -> None:
    change = after(failed_refund(), Succeeded(santim), has_room=has_room)
    assert change is not None
    assert (change.event_type, change.entry_kind) == (None, None)
    assert (change.refund.state, change.refund.late_success_at) == (RefundState.FAILED, AT + OFFSET)
    later = AT + timedelta(hours=1)
    assert after(change.refund, Succeeded(santim), at=later, has_room=has_room) is None


@pytest.mark.parametrize("outcome", [Failed("x"), Cancelled(), Unknown("x"), NotFound(), NotSent("x"), InProgress()])
def test_nothing_else_changes_a_refund_that_failed(outcome: Outcome) -> None:
    assert after(failed_refund(), outcome) is None


def test_a_no_in_a_word_that_nobody_knows_is_a_no_all_the_same() -> None:
    failed = changed(refund_in(RefundState.SUBMITTING), Failed("E-77"))
    assert (failed.state, failed.failure_code, failed.raw_code) == (RefundState.FAILED, "provider_rejected", "E-77")


def test_a_no_that_money_may_overtake_is_no_definite_word() -> None:
    refund = changed(refund_in(RefundState.IN_PROGRESS), Failed("timeout", "T", news_after=timedelta(seconds=60)))
    assert refund.state is RefundState.IN_DOUBT


@pytest.mark.parametrize(
    ("outcome", "becomes"),
    [
        (Succeeded(5_000), RefundState.COMPLETED),
        (InProgress(), RefundState.IN_PROGRESS),
        (Failed("provider_rejected"), RefundState.FAILED),
    ],
)
def test_what_seemed_not_to_have_arrived_and_did_is_not_sent_again(outcome: Outcome, becomes: RefundState) -> None:
    waiting = changed(refund_in(RefundState.SUBMITTING), NotSent("no connection"))
    assert changed(waiting, outcome).state is becomes
    for nothing in (NotSent("x"), NotFound(), Unknown("x")):
        assert after(waiting, nothing) is None


def test_what_does_not_get_through_is_sent_again_on_the_schedule_and_then_is_an_operators() -> None:
    refund = changed(refund_in(RefundState.SUBMITTING), NotSent("no connection"))
    sent_after: list[timedelta] = []
    while refund.state is RefundState.APPROVED:
        assert refund.ask_at is not None
        sent_after.append(refund.ask_at - AT)
        again = lifecycle.submitted(refund, at=refund.ask_at, clock_offset=OFFSET)
        # Whether it says so at once, or is found not to know it much later, it has not arrived.
        refund = changed(again, NotSent("no connection"), at=refund.ask_at)
    assert tuple(sent_after) == doubt.SCHEDULE
    assert (refund.state, refund.ask_at) == (RefundState.NEEDS_REVIEW, None)
    once_more = lifecycle.sent_again(refund, at=AT)
    assert once_more is not None
    assert (once_more.refund.state, once_more.refund.ask_at) == (RefundState.APPROVED, AT)
    assert once_more.refund.sent_in_vain == 0


def test_what_the_rail_once_had_is_not_sent_again_on_anybodys_word() -> None:
    for state in RefundState:
        assert lifecycle.sent_again(refund_in(state, taken=True), at=AT) is None


def test_the_table_tells_each_end_and_books_what_was_approved() -> None:
    assert {target for _, target in CHANGES} == {RefundState.APPROVED, RefundState.COMPLETED, RefundState.FAILED}
    for (was, target), (event_type, kind) in CHANGES.items():
        assert event_type.value == f"refund.{target.value}"
        assert (kind is None) == (was is RefundState.PENDING_APPROVAL and target is RefundState.FAILED)


def test_a_refund_in_doubt_is_asked_about_on_the_schedule_and_then_is_an_operators() -> None:
    refund = changed(refund_in(RefundState.SUBMITTING), Unknown("cut"))
    asked_after: list[timedelta] = []
    while refund.state is RefundState.IN_DOUBT:
        assert refund.ask_at is not None
        asked_after.append(refund.ask_at - AT)
        refund = changed(refund, Unknown("still"), at=refund.ask_at)
    assert tuple(asked_after) == doubt.SCHEDULE
    assert (refund.state, refund.ask_at) == (RefundState.NEEDS_REVIEW, None)


def test_what_certainly_did_not_leave_is_sent_again_later() -> None:
    refund = changed(refund_in(RefundState.SUBMITTING), NotSent("no connection"))
    assert refund.state is RefundState.APPROVED
    assert refund.ask_at is not None
    assert refund.ask_at > AT
    again = lifecycle.submitted(refund, at=refund.ask_at, clock_offset=OFFSET)
    assert (again.id, again.state) == (refund.id, RefundState.SUBMITTING)
    assert again.submitted_at == refund.ask_at + OFFSET


@pytest.mark.parametrize("seconds", [0, 59.9, 60])
def test_not_found_proves_nothing_until_a_minute_after_it_was_last_sent(seconds: float) -> None:
    refund = changed(refund_in(RefundState.SUBMITTING), NotFound(), at=APPROVED_AT + timedelta(seconds=seconds))
    assert refund.state is (RefundState.APPROVED if seconds >= 60 else RefundState.IN_DOUBT)


@pytest.mark.parametrize("outcome", [NotSent("no connection"), NotFound()])
@pytest.mark.parametrize("state", sorted(SENT_STATES))
def test_what_the_rail_once_had_is_never_sent_again(state: RefundState, outcome: Outcome) -> None:
    refund = changed(refund_in(state, taken=True), outcome, at=AT + timedelta(days=1))
    assert refund.state is RefundState.IN_DOUBT


def test_the_rails_first_word_is_remembered() -> None:
    refund = changed(refund_in(RefundState.SUBMITTING), InProgress("R1", timedelta(seconds=2)))
    assert (refund.taken_at, refund.rail_reference) == (AT + OFFSET, "R1")
    assert refund.ask_at == AT + timedelta(seconds=2)
    doubted = changed(refund, Unknown("cut"))
    assert changed(doubted, NotFound(), at=AT + timedelta(hours=2)).state is RefundState.IN_DOUBT
