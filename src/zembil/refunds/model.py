"""Refunds, and what merchants see of them."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from msgspec import UNSET, Raw, Struct, UnsetType

from zembil import ids, instants, money
from zembil.ids import Prefix

SYSTEM = "system"  # who asks for and approves the return of money that was never a payment's


class RefundState(StrEnum):
    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"  # to be sent
    SUBMITTING = "submitting"  # committed by us; the rail may or may not have heard of it
    IN_PROGRESS = "in_progress"  # the rail works on it
    IN_DOUBT = "in_doubt"  # nobody knows yet; the rail is asked
    NEEDS_REVIEW = "needs_review"  # the rail never told; an operator has to
    COMPLETED = "completed"
    FAILED = "failed"


class RefundStatus(StrEnum):
    """What merchants see of the state."""

    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    COMPLETED = "completed"
    FAILED = "failed"


SENT_STATES = frozenset(
    {RefundState.SUBMITTING, RefundState.IN_PROGRESS, RefundState.IN_DOUBT, RefundState.NEEDS_REVIEW}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """Money to be returned to who paid it."""

    account_id: int
    id: uuid.UUID
    payment_id: uuid.UUID
    charge_id: uuid.UUID
    amount_santim: int
    requested_by: str  # a user, or SYSTEM
    of_surplus: bool = False
    state: RefundState = RefundState.PENDING_APPROVAL
    reason: str | None = None
    metadata: Raw | None = None
    failure_code: str | None = None
    failure_message: str | None = None
    raw_code: str | None = None
    rail_reference: str | None = None
    approved_by: str | None = None
    self_approval: bool = False
    approved_at: datetime | None = None
    submitted_at: datetime | None = None  # when it was last sent
    taken_at: datetime | None = None  # when the rail first said that it has it
    completed_at: datetime | None = None  # in the account's time, as all but ask_at
    sequence: int = 1
    ask_at: datetime | None = None  # when the worker sends it or asks, in the database's time
    asked: int = 0
    sent_in_vain: int = 0  # how often it certainly did not arrive
    late_success_at: datetime | None = None  # when the rail said that the money went, after it had failed

    @property
    def created_at(self) -> datetime:
        return ids.created_at(self.id)

    @property
    def status(self) -> RefundStatus:
        return RefundStatus.APPROVED if self.state in SENT_STATES else RefundStatus(self.state.value)


class ShownRefund(Struct, frozen=True):
    """A refund as its GET and every event of it show it (contract, Refund; decisions, section 3)."""

    id: str
    payment_id: str
    status: RefundStatus
    amount: Decimal
    currency: str
    reason: str | None
    created_at: str
    requested_by: str
    livemode: bool
    metadata: Raw | UnsetType = UNSET
    approved_by: str | UnsetType = UNSET
    approved_at: str | UnsetType = UNSET
    completed_at: str | UnsetType = UNSET
    failure_code: str | UnsetType = UNSET
    failure_message: str | UnsetType = UNSET


def shown(refund: Refund, *, livemode: bool) -> ShownRefund:
    """The refund as merchants see it."""
    return ShownRefund(
        id=ids.shown(Prefix.REFUND, refund.id),
        payment_id=ids.shown(Prefix.PAYMENT, refund.payment_id),
        status=refund.status,
        amount=money.birr_of(refund.amount_santim),
        currency=money.CURRENCY,
        reason=refund.reason,
        created_at=instants.shown(refund.created_at),
        requested_by=refund.requested_by,
        livemode=livemode,
        metadata=UNSET if refund.metadata is None else refund.metadata,
        approved_by=refund.approved_by or UNSET,
        approved_at=instants.shown(refund.approved_at) if refund.approved_at else UNSET,
        completed_at=instants.shown(refund.completed_at) if refund.completed_at else UNSET,
        failure_code=refund.failure_code or UNSET,
        failure_message=refund.failure_message or UNSET,
    )
