"""How refunds change: the table, and what a rail's outcome makes of one. Pure; docs/lifecycle.md draws it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from zembil.ledger.model import EntryKind
from zembil.rails import doubt, rail
from zembil.refunds.model import SENT_STATES, Refund, RefundState
from zembil.webhooks.model import EventType

# What each change of a refund is told and booked as. Changes between the states of a sent refund are nobody's business.
CHANGES: dict[tuple[RefundState, RefundState], tuple[EventType, EntryKind | None]] = {
    (RefundState.PENDING_APPROVAL, RefundState.APPROVED): (EventType.REFUND_APPROVED, EntryKind.REFUND_APPROVED),
    (RefundState.PENDING_APPROVAL, RefundState.FAILED): (EventType.REFUND_FAILED, None),
    **{
        (state, RefundState.COMPLETED): (EventType.REFUND_COMPLETED, EntryKind.REFUND_COMPLETED)
        for state in SENT_STATES
    },
    **{(state, RefundState.FAILED): (EventType.REFUND_FAILED, EntryKind.REFUND_FAILED) for state in SENT_STATES},
}

_RESEND_AFTER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Change:
    """What one step makes of a refund; the event that tells of it and how it is booked, if it is news."""

    refund: Refund
    event_type: EventType | None = None
    entry_kind: EntryKind | None = None


def approved(refund: Refund, *, by: str, self_approval: bool, at: datetime, send_at: datetime) -> Change:
    """`at` is in the account's time, `send_at` in the database's. Raises KeyError unless it awaits approval."""
    return _ended_or_approved(
        replace(refund, approved_by=by, self_approval=self_approval, approved_at=at, ask_at=send_at),
        RefundState.APPROVED,
    )


def rejected(refund: Refund, *, message: str | None) -> Change:
    """Raises KeyError unless it awaits approval."""
    return _ended_or_approved(
        replace(refund, failure_code="rejected", failure_message=message or "The refund was rejected."),
        RefundState.FAILED,
    )


def submitted(refund: Refund, *, at: datetime, clock_offset: timedelta) -> Refund:
    """The refund while its rail is being called; a crash leaves it to be asked about."""
    ask_at = at + doubt.SUBMITTING_AT_MOST
    return replace(refund, state=RefundState.SUBMITTING, submitted_at=at + clock_offset, ask_at=ask_at, asked=0)


def after(refund: Refund, outcome: rail.Outcome, *, at: datetime, clock_offset: timedelta) -> Change | None:
    """What an outcome makes of a refund that was sent; None if it comes too late to change anything.

    `failed` only on the rail's definite word. What certainly did not leave is sent again, with the same reference.
    """
    if refund.state not in SENT_STATES:
        return None
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
            return _ended_or_approved(done, RefundState.COMPLETED)
        case rail.Failed() | rail.Cancelled():
            code = outcome.code if isinstance(outcome, rail.Failed) else "customer_declined"
            failed = replace(
                refund,
                failure_code=code,
                failure_message="The wallet's network refused the refund.",
                raw_code=outcome.raw_code,
                ask_at=None,
            )
            return _ended_or_approved(failed, RefundState.FAILED)
        case rail.NotSent() if refund.taken_at is None:
            return Change(replace(refund, state=RefundState.APPROVED, ask_at=at + _RESEND_AFTER))
        case rail.NotFound() if refund.taken_at is None and _is_old(refund, at=at + clock_offset):
            return Change(replace(refund, state=RefundState.APPROVED, ask_at=at))
        case rail.NotSent() | rail.NotFound() | rail.Unknown():
            return Change(_in_doubt(refund, at=at))
        case _:
            assert_never(outcome)


def _is_old(refund: Refund, *, at: datetime) -> bool:
    """Whether it was sent so long ago that a rail which does not know it has never got it."""
    return refund.submitted_at is not None and at - refund.submitted_at >= doubt.NOT_FOUND_PROVES_AFTER


def _ended_or_approved(refund: Refund, state: RefundState) -> Change:
    event_type, entry_kind = CHANGES[refund.state, state]
    return Change(replace(refund, state=state, sequence=refund.sequence + 1), event_type, entry_kind)


def _in_doubt(refund: Refund, *, at: datetime) -> Refund:
    asked = refund.asked + 1 if refund.state is RefundState.IN_DOUBT else 0
    ask_at = doubt.next_question(asked, at=at)
    state = RefundState.NEEDS_REVIEW if ask_at is None else RefundState.IN_DOUBT
    return replace(refund, state=state, asked=asked, ask_at=ask_at)
