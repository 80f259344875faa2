"""GET /balance, GET /ledger/entries, GET /charges?state=in_doubt, POST /charges/{charge_id}/ask."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from zembil import ids, instants, money
from zembil.accounts.permissions import Permission
from zembil.db.pool import Database, reading
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.ledger.model import Entry, EntryKind
from zembil.ledger.queries import find_balance, list_entries
from zembil.management import operations, queries
from zembil.management.queries import DoubtfulCharge
from zembil.payments.charger import Charger
from zembil.payments.model import ChargeState
from zembil.web.cursors import taken_page
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route

_OF_CHARGES = frozenset({EntryKind.CHARGE_SUCCEEDED, EntryKind.CHARGE_SURPLUS})
_IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class ManagementEndpoints:
    """The endpoints of the API for the books, and for charges in doubt."""

    db: Database
    charger: Charger

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/balance", Permission.VIEW, self.balance),
            Route("GET", "/ledger/entries", Permission.VIEW, self.list_entries),
            Route("GET", "/charges", Permission.ASK_ABOUT_DOUBT, self.list_charges),
            Route("POST", "/charges/{charge_id}/ask", Permission.ASK_ABOUT_DOUBT, self.ask),
        ]

    async def balance(self, call: Call) -> Answer:
        async with reading(self.db) as conn:
            balance = await find_balance(conn, call.account.id)
        return success(
            {
                "currency": money.CURRENCY,
                "available": money.birr_of(balance.available_santim),
                "refunds_in_transit": money.birr_of(balance.refunds_in_transit_santim),
                "unallocated": money.birr_of(balance.unallocated_santim),
            }
        )

    async def list_entries(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        page = taken_page(parameters, "entries", has_offset=False)
        parameters.finish()
        async with reading(self.db) as conn:
            entries = await list_entries(conn, call.account.id, before=page.last, limit=page.limit)
        return success(
            {
                "entries": [_shown_entry(entry) for entry in entries],
                "pagination": page.pagination([entry.id for entry in entries]),
            }
        )

    async def list_charges(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        state = parameters.take("state", lambda text: text if text == _IN_DOUBT else None, "Give in_doubt.")
        page = taken_page(parameters, "charges", {"state": state}, has_offset=False)
        parameters.finish()
        async with reading(self.db) as conn:
            charges = await queries.list_doubtful_charges(conn, call.account.id, before=page.last, limit=page.limit)
        return success(
            {
                "charges": [_shown_charge(charge) for charge in charges],
                "pagination": page.pagination([charge.id for charge in charges]),
            }
        )

    async def ask(self, call: Call) -> Answer:
        charge_id = ids.parsed(Prefix.CHARGE, call.path_values[0])
        if charge_id is None:
            raise ResourceNotFound
        charge, payment = await operations.ask_about_charge(self.charger, call.account, charge_id)
        is_in_doubt = charge.state in operations.IN_DOUBT
        return success(
            {
                "id": ids.shown(Prefix.CHARGE, charge.id),
                "payment_id": ids.shown(Prefix.PAYMENT, charge.payment_id),
                "state": _IN_DOUBT if is_in_doubt else charge.state,
                "payment_status": payment.status,
            }
        )


def _shown_entry(entry: Entry) -> dict[str, Any]:
    source = Prefix.CHARGE if entry.kind in _OF_CHARGES else Prefix.REFUND
    return {
        "id": ids.shown(Prefix.ENTRY, entry.id),
        "debit": entry.debit,
        "credit": entry.credit,
        "amount": money.birr_of(entry.amount_santim),
        "currency": money.CURRENCY,
        "source": ids.shown(source, entry.source_id),
        "kind": entry.kind,
        "created_at": instants.shown(entry.created_at),
    }


def _shown_charge(charge: DoubtfulCharge) -> dict[str, Any]:
    asks_at = charge.ask_at and charge.ask_at + timedelta(seconds=charge.clock_offset_seconds)
    return {
        "id": ids.shown(Prefix.CHARGE, charge.id),
        "payment_id": ids.shown(Prefix.PAYMENT, charge.payment_id),
        "state": _IN_DOUBT,
        "needs_review": charge.state is ChargeState.NEEDS_REVIEW,
        "amount": money.birr_of(charge.amount_santim),
        "currency": money.CURRENCY,
        "mobile_money_provider": charge.rail,
        "phone": charge.phone,
        "created_at": instants.shown(ids.created_at(charge.id)),
        "asked": charge.asked,
        "asks_again_at": instants.shown(asks_at) if asks_at else None,
    }
