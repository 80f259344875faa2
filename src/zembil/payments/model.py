"""Payments and charges, and what merchants see of them."""

import hashlib
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from msgspec import UNSET, Raw, Struct, UnsetType

from zembil import ids, instants, money
from zembil.ids import Prefix
from zembil.rails.rail import Wallet


class PaymentStatus(StrEnum):
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ChargeState(StrEnum):
    SUBMITTING = "submitting"  # committed by us; the rail may or may not have heard of it
    AWAITING_CUSTOMER = "awaiting_customer"  # the prompt is on the phone
    IN_PROGRESS = "in_progress"  # the customer confirmed, the rail works on it
    IN_DOUBT = "in_doubt"  # nobody knows yet; the rail is asked
    NEEDS_REVIEW = "needs_review"  # the rail never told; an operator has to
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SURPLUS = "surplus"  # money that came and is not the payment's; it is returned


class CancellationReason(StrEnum):
    CUSTOMER = "customer"
    MERCHANT = "merchant"
    EXPIRED = "expired"


class FailureCode(StrEnum):
    INSUFFICIENT_FUNDS = "insufficient_funds"
    CUSTOMER_DECLINED = "customer_declined"
    WRONG_PIN = "wrong_pin"
    TIMEOUT = "timeout"
    LIMIT_EXCEEDED = "limit_exceeded"
    AMOUNT_OUT_OF_RANGE = "amount_out_of_range"
    INVALID_PHONE = "invalid_phone"
    PAYER_NOT_ELIGIBLE = "payer_not_eligible"
    PAYER_BUSY = "payer_busy"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_REJECTED = "provider_rejected"
    DECLINED = "declined"

    @classmethod
    def of(cls, said: str) -> "FailureCode":
        """The code that a rail said; a word that is none of ours still is the rail's no."""
        try:
            return cls(said)
        except ValueError:
            return cls.PROVIDER_REJECTED


FAILURE_MESSAGES: dict[FailureCode, str] = {
    FailureCode.INSUFFICIENT_FUNDS: "There was not enough money in the wallet.",
    FailureCode.CUSTOMER_DECLINED: "The payment was declined on the phone.",
    FailureCode.WRONG_PIN: "The PIN was wrong.",
    FailureCode.TIMEOUT: "The prompt on the phone was not answered in time.",
    FailureCode.LIMIT_EXCEEDED: "The wallet's limit does not allow this amount now.",
    FailureCode.AMOUNT_OUT_OF_RANGE: "The wallet does not take this amount.",
    FailureCode.INVALID_PHONE: "The wallet does not know this phone number.",
    FailureCode.PAYER_NOT_ELIGIBLE: "The wallet of this number cannot pay.",
    FailureCode.PAYER_BUSY: "Another payment is waiting on this phone.",
    FailureCode.PROVIDER_UNAVAILABLE: "The wallet's network could not be reached.",
    FailureCode.PROVIDER_REJECTED: "The wallet's network refused the request.",
    FailureCode.DECLINED: "The wallet declined the payment.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """What a merchant is to be paid, and how it stands."""

    account_id: int
    id: uuid.UUID
    amount_santim: int
    expires_at: datetime
    link_secret: bytes = field(repr=False)
    status: PaymentStatus = PaymentStatus.PENDING
    sequence: int = 1
    charges_sent: int = 0
    reserved_santim: int = 0  # by refunds that have not failed
    refunded_santim: int = 0  # by refunds that have completed
    due_at: datetime | None = None  # when the worker has to push or expire it, in the database's time
    ended_at: datetime | None = None
    open_charge_id: uuid.UUID | None = None
    transaction_id: uuid.UUID | None = None
    failure_code: FailureCode | None = None
    cancellation_reason: CancellationReason | None = None
    mobile_money_provider: str | None = None
    customer_id: uuid.UUID | None = None
    email: str | None = None
    phone: str | None = None
    name: str | None = None
    description: str | None = None
    reference: str | None = None
    callback_url: str | None = None
    metadata: Raw | None = None  # as it was given

    @property
    def created_at(self) -> datetime:
        return ids.created_at(self.id)

    @property
    def link_token(self) -> str:
        return ids.link_token(self.account_id, self.id, self.link_secret)

    @property
    def receipt_secret(self) -> bytes:
        return hashlib.sha256(b"receipt|" + self.link_secret).digest()[:16]

    @property
    def receipt_token(self) -> str:
        """Of the receipt's link: whoever has the payment link can make it, and it does not lead back to that."""
        return ids.link_token(self.account_id, self.id, self.receipt_secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One try to collect a payment over a rail."""

    account_id: int
    id: uuid.UUID
    payment_id: uuid.UUID
    rail: Wallet
    phone: str
    pushed: bool  # asked for at creation; nobody is at a page
    state: ChargeState = ChargeState.SUBMITTING
    failure_code: FailureCode | None = None
    raw_code: str | None = None
    rail_reference: str | None = None
    prompted_at: datetime | None = None  # in the account's time, as all but ask_at
    confirmed_at: datetime | None = None
    ended_at: datetime | None = None
    ask_at: datetime | None = None  # when the worker asks the rail, in the database's time
    asked: int = 0  # how often since it came in doubt
    received_santim: int | None = None  # what came and is not the payment's: of another amount, or too late

    @property
    def started_at(self) -> datetime:
        return ids.created_at(self.id)


class ShownCustomer(Struct, frozen=True):
    email: str | None
    phone: str | None


class ShownPayment(Struct, frozen=True):
    """A payment as GET /payments/{id} and every event of it show it (contract, Payment; decisions, section 2)."""

    id: str
    status: PaymentStatus
    amount: Decimal
    currency: str
    customer: ShownCustomer
    description: str | None
    payment_method: str
    created_at: str
    expires_at: str
    payment_link: str
    livemode: bool
    amount_refunded: Decimal
    completed_at: str | UnsetType = UNSET
    transaction_id: str | UnsetType = UNSET
    reference: str | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET
    callback_url: str | UnsetType = UNSET
    mobile_money_provider: str | UnsetType = UNSET
    failure_code: str | UnsetType = UNSET
    failure_message: str | UnsetType = UNSET
    cancellation_reason: str | UnsetType = UNSET


def shown(payment: Payment, *, livemode: bool, public_url: str) -> ShownPayment:
    """The payment as merchants see it."""
    completed_at = transaction_id = failure_message = UNSET
    if payment.status is PaymentStatus.COMPLETED and payment.ended_at and payment.transaction_id:
        completed_at = instants.shown(payment.ended_at)
        transaction_id = ids.shown(Prefix.TRANSACTION, payment.transaction_id)
    if payment.failure_code is not None:
        failure_message = FAILURE_MESSAGES[payment.failure_code]
    return ShownPayment(
        id=ids.shown(Prefix.PAYMENT, payment.id),
        status=payment.status,
        amount=money.birr_of(payment.amount_santim),
        currency=money.CURRENCY,
        customer=ShownCustomer(payment.email, payment.phone),
        description=payment.description,
        payment_method="mobile_money",
        created_at=instants.shown(payment.created_at),
        expires_at=instants.shown(payment.expires_at),
        payment_link=link(payment, public_url),
        livemode=livemode,
        amount_refunded=money.birr_of(payment.refunded_santim),
        completed_at=completed_at,
        transaction_id=transaction_id,
        reference=payment.reference or UNSET,
        metadata=UNSET if payment.metadata is None else payment.metadata,
        callback_url=payment.callback_url or UNSET,
        mobile_money_provider=payment.mobile_money_provider or UNSET,
        failure_code=payment.failure_code or UNSET,
        failure_message=failure_message,
        cancellation_reason=payment.cancellation_reason or UNSET,
    )


def link(payment: Payment, public_url: str) -> str:
    """The payment link: the address of the payment page."""
    return link_prefix(public_url) + payment.link_token


def link_prefix(public_url: str) -> str:
    return f"{public_url}/p/"
