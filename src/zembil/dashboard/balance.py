"""The balance, the ledger entries that it is the sum of, and charges of which nobody knows yet what became."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.dashboard import words
from zembil.dashboard.balance_queries import payments_of_charges
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading
from zembil.errors import InvalidState, ResourceNotFound
from zembil.ids import Prefix
from zembil.ledger.model import Entry, LedgerAccount
from zembil.ledger.queries import find_balance, list_entries
from zembil.management import operations
from zembil.management.queries import DoubtfulCharge, list_doubtful_charges
from zembil.payments.charger import Charger
from zembil.payments.model import ChargeState
from zembil.web.cursors import taken_page

PATH = "/balance"
ROWS, _DOUBTFUL_MAX = 25, 100


class EntryRow(Struct, frozen=True):
    """A ledger entry as the list shows it."""

    what: str
    amount_santim: int
    source: str
    debit: str
    credit: str
    of_balance: str  # what it makes of the available balance: "+", "−", or nothing
    path: str
    source_id: str
    created_at: datetime


class DoubtfulRow(Struct, frozen=True):
    id: str
    payment_id: str
    amount_santim: int
    wallet: str
    phone: str
    why: str
    created_at: datetime
    asks_at: datetime | None


@dataclass(frozen=True, slots=True)
class BalancePages:
    door: Doorkeeper
    charger: Charger

    def routes(self) -> list[Route]:
        return [
            page(PATH, self.show),
            action(f"{PATH}/charges/{{id}}/ask", self.ask, Permission.ASK_ABOUT_DOUBT),
        ]

    async def show(self, visit: Visit) -> Answer:
        parameters, account = visit.parameters, visit.account
        asked = taken_page(parameters, "entries", has_offset=False, limit_default=ROWS)
        parameters.finish()
        charges: list[DoubtfulCharge] = []
        async with reading(self.door.db) as conn:
            balance = await find_balance(conn, account.id)
            entries = await list_entries(conn, account.id, before=asked.last, limit=asked.limit)
            payments = await payments_of_charges(conn, account.id, [entry.source_id for entry in entries])
            if visit.may(Permission.ASK_ABOUT_DOUBT):
                charges = await list_doubtful_charges(conn, account.id, before=None, limit=_DOUBTFUL_MAX)
        context = {
            "balance": balance,
            "booked": [_entry_row(entry, payments) for entry in entries],
            "next_cursor": asked.next_cursor([entry.id for entry in entries]),
            "charges": [_doubtful_row(charge, visit) for charge in charges],
        }
        return Page("balance.html", context)

    async def ask(self, visit: Visit) -> Answer:
        charge_id = ids.parsed(Prefix.CHARGE, visit.value("id"))
        if charge_id is None:
            raise ResourceNotFound
        try:
            charge, payment = await operations.ask_about_charge(self.charger, visit.account, charge_id)
        except InvalidState:
            return GoTo(PATH, Notice("This charge is not in doubt any more."))
        if charge.state in operations.IN_DOUBT:
            text = "The wallet does not know it either. It is asked again by itself; nothing is lost meanwhile."
            return GoTo(PATH, Notice(text, is_bad=True))
        word = words.PAYMENT[payment.status][0].lower()
        path = f"/payments/{ids.shown(Prefix.PAYMENT, payment.id)}"
        return GoTo(path, Notice(f"The wallet has answered: the payment is {word}."))


def _entry_row(entry: Entry, payments: Mapping[uuid.UUID, uuid.UUID]) -> EntryRow:
    """An entry leads to the payment or the refund that it books."""
    payment_id = payments.get(entry.source_id)
    if payment_id is not None:
        source, path, source_id = "Payment", "/payments", ids.shown(Prefix.PAYMENT, payment_id)
    else:
        source, path, source_id = "Refund", "/refunds", ids.shown(Prefix.REFUND, entry.source_id)
    of_balance = "+" if entry.credit is LedgerAccount.MERCHANT_BALANCE else ""
    return EntryRow(
        words.ENTRY[entry.kind],
        entry.amount_santim,
        source,
        words.LEDGER_ACCOUNT[entry.debit],
        words.LEDGER_ACCOUNT[entry.credit],
        "−" if entry.debit is LedgerAccount.MERCHANT_BALANCE else of_balance,
        f"{path}/{source_id}",
        source_id,
        entry.created_at,
    )


def _doubtful_row(charge: DoubtfulCharge, visit: Visit) -> DoubtfulRow:
    return DoubtfulRow(
        ids.shown(Prefix.CHARGE, charge.id),
        ids.shown(Prefix.PAYMENT, charge.payment_id),
        charge.amount_santim,
        charge.rail.brand,
        charge.phone,
        "the operator looks into it" if charge.state is ChargeState.NEEDS_REVIEW else charge.why,
        ids.created_at(charge.id),
        visit.account.now(charge.ask_at) if charge.ask_at else None,
    )
