"""Which accounts each fact moves money between."""

import uuid
from datetime import datetime

from zembil import ids
from zembil.ledger.model import Entry, EntryKind, LedgerAccount

_CLEARING = LedgerAccount.RAIL_CLEARING
_BALANCE = LedgerAccount.MERCHANT_BALANCE
_TRANSIT = LedgerAccount.REFUNDS_IN_TRANSIT
_UNALLOCATED = LedgerAccount.UNALLOCATED

# (debit, credit) of each kind; a refund of surplus money leaves `unallocated` instead of the merchant's balance.
RULES: dict[tuple[EntryKind, bool], tuple[LedgerAccount, LedgerAccount]] = {
    (EntryKind.CHARGE_SUCCEEDED, False): (_CLEARING, _BALANCE),
    (EntryKind.CHARGE_SURPLUS, True): (_CLEARING, _UNALLOCATED),
    (EntryKind.REFUND_APPROVED, False): (_BALANCE, _TRANSIT),
    (EntryKind.REFUND_APPROVED, True): (_UNALLOCATED, _TRANSIT),
    (EntryKind.REFUND_COMPLETED, False): (_TRANSIT, _CLEARING),
    (EntryKind.REFUND_COMPLETED, True): (_TRANSIT, _CLEARING),
    (EntryKind.REFUND_FAILED, False): (_TRANSIT, _BALANCE),
    (EntryKind.REFUND_FAILED, True): (_TRANSIT, _UNALLOCATED),
    (EntryKind.REFUND_COMPLETED_LATE, False): (_BALANCE, _CLEARING),
    (EntryKind.REFUND_COMPLETED_LATE, True): (_UNALLOCATED, _CLEARING),
}


def entry_for(
    kind: EntryKind,
    *,
    of_surplus: bool = False,
    account_id: int,
    source_id: uuid.UUID,
    amount_santim: int,
    at: datetime,
) -> Entry:
    """The entry that books a fact at the instant `at` of the account's time."""
    debit, credit = RULES[kind, of_surplus]
    return Entry(
        account_id=account_id,
        id=ids.new_id(at),
        source_id=source_id,
        kind=kind,
        debit=debit,
        credit=credit,
        amount_santim=amount_santim,
        created_at=at,
    )
