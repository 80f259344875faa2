"""Ledger accounts and entries."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LedgerAccount(StrEnum):
    RAIL_CLEARING = "rail_clearing"  # money that rails hold for the merchant
    MERCHANT_BALANCE = "merchant_balance"  # what belongs to the merchant
    REFUNDS_IN_TRANSIT = "refunds_in_transit"  # approved, not yet with the customer
    UNALLOCATED = "unallocated"  # received, but no payment's


class EntryKind(StrEnum):
    CHARGE_SUCCEEDED = "charge_succeeded"
    CHARGE_SURPLUS = "charge_surplus"
    REFUND_APPROVED = "refund_approved"
    REFUND_COMPLETED = "refund_completed"
    REFUND_FAILED = "refund_failed"
    REFUND_COMPLETED_LATE = "refund_completed_late"  # after it had failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One amount from one ledger account to another; it cannot be unbalanced."""

    account_id: int
    id: uuid.UUID
    source_id: uuid.UUID
    kind: EntryKind
    debit: LedgerAccount
    credit: LedgerAccount
    amount_santim: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Balance:
    available_santim: int
    refunds_in_transit_santim: int
    unallocated_santim: int
