"""States, events and entries as people say them, each state with the kind of its colour."""

from zembil.ledger.model import EntryKind, LedgerAccount
from zembil.payments.model import ChargeState, PaymentStatus
from zembil.refunds.model import Refund, RefundState, RefundStatus
from zembil.webhooks.model import DeliveryStatus, EventType

Worded = tuple[str, str]  # the word, and good, wait, bad or quiet

PAYMENT: dict[PaymentStatus, Worded] = {
    PaymentStatus.PENDING: ("Pending", "wait"),
    PaymentStatus.COMPLETED: ("Completed", "good"),
    PaymentStatus.FAILED: ("Failed", "bad"),
    PaymentStatus.CANCELLED: ("Cancelled", "quiet"),
}
REFUND: dict[RefundStatus, Worded] = {
    RefundStatus.PENDING_APPROVAL: ("Waits for approval", "wait"),
    RefundStatus.APPROVED: ("Approved", "wait"),
    RefundStatus.COMPLETED: ("Completed", "good"),
    RefundStatus.FAILED: ("Failed", "bad"),
}
CHARGE: dict[ChargeState, Worded] = {
    ChargeState.SUBMITTING: ("Being sent", "wait"),
    ChargeState.AWAITING_CUSTOMER: ("Waits for the customer", "wait"),
    ChargeState.IN_PROGRESS: ("Confirmed, under way", "wait"),
    ChargeState.IN_DOUBT: ("In doubt: the wallet is being asked", "wait"),
    ChargeState.NEEDS_REVIEW: ("In doubt: the wallet never told", "bad"),
    ChargeState.SUCCEEDED: ("Succeeded", "good"),
    ChargeState.FAILED: ("Failed", "bad"),
    ChargeState.CANCELLED: ("Cancelled", "quiet"),
    ChargeState.SURPLUS: ("Paid after the end; the money goes back", "wait"),
}
DELIVERY: dict[DeliveryStatus, Worded] = {
    DeliveryStatus.PENDING: ("Pending", "wait"),
    DeliveryStatus.SUCCEEDED: ("Succeeded", "good"),
    DeliveryStatus.FAILED: ("Failed", "bad"),
    DeliveryStatus.CANCELLED: ("Cancelled", "quiet"),
}
EVENT: dict[EventType, str] = {
    EventType.PAYMENT_CREATED: "The payment was made",
    EventType.PAYMENT_PENDING: "The prompt reached the customer’s phone",
    EventType.PAYMENT_PROCESSING: "The customer confirmed",
    EventType.PAYMENT_COMPLETED: "The payment is completed",
    EventType.PAYMENT_FAILED: "The payment failed",
    EventType.PAYMENT_CANCELLED: "The payment was cancelled",
    EventType.REFUND_CREATED: "A refund was asked for",
    EventType.REFUND_APPROVED: "The refund was approved",
    EventType.REFUND_COMPLETED: "The refund arrived",
    EventType.REFUND_FAILED: "The refund failed",
    EventType.CUSTOMER_CREATED: "The customer was made",
    EventType.CUSTOMER_UPDATED: "The customer was changed",
}
ENTRY: dict[EntryKind, str] = {
    EntryKind.CHARGE_SUCCEEDED: "A payment came in",
    EntryKind.CHARGE_SURPLUS: "Money came that no payment waited for",
    EntryKind.REFUND_APPROVED: "A refund was approved",
    EntryKind.REFUND_COMPLETED: "A refund arrived",
    EntryKind.REFUND_FAILED: "A refund failed; its money is back",
    EntryKind.REFUND_COMPLETED_LATE: "A refund that had failed arrived after all",
}
LEDGER_ACCOUNT: dict[LedgerAccount, str] = {
    LedgerAccount.RAIL_CLEARING: "Wallets",
    LedgerAccount.MERCHANT_BALANCE: "Available",
    LedgerAccount.REFUNDS_IN_TRANSIT: "Refunds on their way",
    LedgerAccount.UNALLOCATED: "No payment’s",
}

_REFUND_STATES: dict[RefundState, Worded] = {
    RefundState.IN_PROGRESS: ("Approved, on its way", "wait"),
    RefundState.IN_DOUBT: ("In doubt: the wallet is being asked", "wait"),
    RefundState.NEEDS_REVIEW: ("In doubt: the operator looks into it", "bad"),
}


def of_refund(refund: Refund) -> Worded:
    """How a refund stands, in more words than its public status has."""
    if refund.failure_code == "rejected":
        return "Rejected", "quiet"
    return _REFUND_STATES.get(refund.state, REFUND[refund.status])
