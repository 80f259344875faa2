"""How refunds change: the table, and what a rail's outcome makes of one. Pure; docs/lifecycle.md draws it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from zembil.ledger.model import EntryKind
from zembil.payments.model import FailureCode
from zembil.rails import doubt, rail
from zembil.refunds.model import SENT_STATES, Refund, RefundState
from zembil.webhooks.model import EventType

# Approved ones too: what seemed not to have arrived may have.
_UNENDED = SENT_STATES | {RefundState.APPROVED}

# What each change of a refund is told and booked as. Changes between the states of a sent refund are nobody's business.
CHANGES: dict[tuple[RefundState, RefundState], tuple[EventType, EntryKind | None]] = {
    (RefundState.PENDING_APPROVAL, RefundState.APPROVED): (EventType.REFUND_APPROVED, EntryKind.REFUND_APPROVED),
    (RefundState.PENDING_APPROVAL, RefundState.FAILED): (EventType.REFUND_FAILED, None),
    **{(state, RefundState.COMPLETED): (EventType.REFUND_COMPLETED, EntryKind.REFUND_COMPLETED) for state in _UNENDED},
    **{(state, RefundState.FAILED): (EventType.REFUND_FAILED, EntryKind.REFUND_FAILED) for state in _UNENDED},
    # The money went after all: the only way out of an end state.
    (RefundState.FAILED, RefundState.COMPLETED): (EventType.REFUND_COMPLETED, EntryKind.REFUND_COMPLETED_LATE),
}


@dataclass(frozen=True, slots=True)
class Change:
    """What one step makes of a refund; the event that tells of it and how it is booked, if it is news."""

    refund: Refund
    event_type: EventType | None = None
    entry_kind: EntryKind | None = None


def approved(refund: Refund, *, by: str, self_approval: bool, at: datetime, send_at: datetime) -> Change:
    """`at` is in the account's time, `send_at` in the database's. Raises KeyError unless it awaits approval."""
    return _changed(
        replace(refund, approved_by=by, self_approval=self_approval, approved_at=at, ask_at=send_at),
        RefundState.APPROVED,
    )


def rejected(refund: Refund, *, message: str | None) -> Change:
    """Raises KeyError unless it awaits approval."""
    if refund.state is not RefundState.PENDING_APPROVAL:
        raise KeyError(refund.state)
    return _changed(
        replace(refund, failure_code="rejected", failure_message=message or "The refund was rejected."),
        RefundState.FAILED,
    )


def submitted(refund: Refund, *, at: datetime, clock_offset: timedelta) -> Refund:
    """The refund while its rail is being called; a crash leaves it to be asked about."""
    ask_at = at + doubt.SUBMITTING_AT_MOST
    return replace(refund, state=RefundState.SUBMITTING, submitted_at=at + clock_offset, ask_at=ask_at, asked=0)


def sent_again(refund: Refund, *, at: datetime) -> Change | None:
    """The refund, to be sent at once, since it certainly never arrived; None if the rail once had it."""
    if refund.state not in SENT_STATES or refund.taken_at is not None:
        return None
    return Change(replace(refund, state=RefundState.APPROVED, ask_at=at, asked=0, sent_in_vain=0, raw_code=None))


def failed_all_the_same(refund: Refund) -> Change:
    """A refund that failed, and of which somebody found out that it did: what its rail said since was wrong."""
    return Change(replace(refund, late_success_at=None))


def after(
    refund: Refund, outcome: rail.Outcome, *, at: datetime, clock_offset: timedelta, has_room: bool
) -> Change | None:
    """What an outcome makes of a refund that was sent; None if it comes too late to change anything.

    `failed` only on the rail's definite word. What certainly did not leave is sent again, with the same reference.
    `has_room`: what a refund that failed had reserved is still free.
    """
    if refund.submitted_at is None or refund.state is RefundState.COMPLETED:
        return None
    if refund.state is RefundState.FAILED:
        return _after_it_failed(refund, outcome, at=at + clock_offset, has_room=has_room)
    if refund.state is RefundState.APPROVED and isinstance(outcome, rail.NotSent | rail.NotFound | rail.Unknown):
        return None  # it waits to be sent again
    match outcome:
        case rail.AwaitingCustomer() | rail.InProgress():
            ask_at = at + (outcome.news_after or doubt.SILENCE_AT_MOST)
            reference = outcome.rail_reference or refund.rail_reference
            taken = replace(refund, taken_at=refund.taken_at or at + clock_offset, rail_reference=reference)
            return Change(replace(taken, state=RefundState.IN_PROGRESS, ask_at=ask_at, asked=0))
        case rail.Succeeded():
            if outcome.amount_santim != refund.amount_santim:
                return Change(replace(refund, state=RefundState.NEEDS_REVIEW, ask_at=None, raw_code="amount_differs"))
            reference = outcome.rail_reference or refund.rail_reference
            done = replace(refund, completed_at=at + clock_offset, ask_at=None, rail_reference=reference)
            return _changed(done, RefundState.COMPLETED)
        case rail.Failed() if outcome.news_after is not None:
            return Change(_in_doubt(refund, at=at))  # a time-out that money may overtake is no definite word
        case rail.Failed() | rail.Cancelled():
            return _refused(refund, outcome)
        case rail.NotSent() if refund.taken_at is None:
            return Change(_unsent(refund, at=at))
        case rail.NotFound() if refund.taken_at is None and _is_old(refund, at=at + clock_offset):
            return Change(_unsent(refund, at=at))
        case rail.NotSent() | rail.NotFound() | rail.Unknown():
            return Change(_in_doubt(refund, at=at))
        case _:
            assert_never(outcome)


def _refused(refund: Refund, outcome: rail.Failed | rail.Cancelled) -> Change:
    failed = replace(
        refund,
        failure_code=FailureCode.of(outcome.code) if isinstance(outcome, rail.Failed) else "customer_declined",
        failure_message="The wallet's network refused the refund.",
        raw_code=outcome.raw_code or (outcome.code if isinstance(outcome, rail.Failed) else None),
        ask_at=None,
    )
    return _changed(failed, RefundState.FAILED)


def _after_it_failed(refund: Refund, outcome: rail.Outcome, *, at: datetime, has_room: bool) -> Change | None:
    """Money that went although its rail had said no: it is counted if it still can be, else an operator has to see."""
    if not isinstance(outcome, rail.Succeeded):
        return None
    late = replace(
        refund,
        late_success_at=refund.late_success_at or at,
        rail_reference=outcome.rail_reference or refund.rail_reference,
    )
    if outcome.amount_santim != refund.amount_santim or not has_room:
        return None if late == refund else Change(late)
    done = replace(late, completed_at=at, failure_code=None, failure_message=None)
    return _changed(done, RefundState.COMPLETED)


def _is_old(refund: Refund, *, at: datetime) -> bool:
    """Whether it was sent so long ago that a rail which does not know it has never got it."""
    return refund.submitted_at is not None and at - refund.submitted_at >= doubt.NOT_FOUND_PROVES_AFTER


def _unsent(refund: Refund, *, at: datetime) -> Refund:
    """Sent again later each time, on the schedule of doubt; then an operator has to see why nothing gets through."""
    ask_at = doubt.next_question(refund.sent_in_vain, at=at)
    in_vain = replace(refund, ask_at=ask_at, sent_in_vain=refund.sent_in_vain + 1)
    if ask_at is None:
        return replace(in_vain, state=RefundState.NEEDS_REVIEW, raw_code="not_sent")
    return replace(in_vain, state=RefundState.APPROVED)


def _changed(refund: Refund, state: RefundState) -> Change:
    event_type, entry_kind = CHANGES[refund.state, state]
    return Change(replace(refund, state=state, sequence=refund.sequence + 1), event_type, entry_kind)


def _in_doubt(refund: Refund, *, at: datetime) -> Refund:
    asked = refund.asked + 1 if refund.state is RefundState.IN_DOUBT else 0
    ask_at = doubt.next_question(asked, at=at)
    state = RefundState.NEEDS_REVIEW if ask_at is None else RefundState.IN_DOUBT
    return replace(refund, state=state, asked=asked, ask_at=ask_at)
