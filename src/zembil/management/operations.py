"""What is done about charges in doubt: their rail is asked, or an operator who knows says what became of them."""

import uuid
from datetime import datetime

from zembil import ids
from zembil.accounts.model import Account
from zembil.accounts.queries import find_account
from zembil.db.pool import Database, reading
from zembil.errors import InvalidState, ResourceNotFound
from zembil.ids import Prefix
from zembil.management import queries
from zembil.management.queries import DoubtfulCharge
from zembil.payments import operations as payments
from zembil.payments.charger import Charger
from zembil.payments.model import Charge, ChargeState, FailureCode, Payment
from zembil.payments.queries import find_charge
from zembil.rails.rail import Failed, Outcome, Succeeded
from zembil.telemetry import log

IN_DOUBT = frozenset({ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW})
_BY_THE_OPERATOR = "operator"


async def ask_about_charge(charger: Charger, account: Account, charge_id: uuid.UUID) -> tuple[Charge, Payment]:
    """Ask the rail now what became of a charge in doubt. Raises ResourceNotFound, InvalidState."""
    async with reading(charger.db) as conn:
        charge = await find_charge(conn, account.id, charge_id)
    if charge is None:
        raise ResourceNotFound
    if charge.state not in IN_DOUBT:
        raise InvalidState("This charge is not in doubt; GET its payment to see what became of it.")
    payment = await charger.ask_now(account, charge)
    async with reading(charger.db) as conn:
        return await find_charge(conn, account.id, charge_id) or charge, payment


async def resolve_doubt(
    db: Database, charge_id: uuid.UUID, *, succeeded: bool, reason: str, public_url: str, at: datetime
) -> tuple[DoubtfulCharge, Payment]:
    """Commit what the operator found out about a charge in doubt; the log keeps who was told what, and why.

    Raises ResourceNotFound if there is no such charge in doubt.
    """
    async with reading(db) as conn:
        doubtful = await queries.find_doubtful_charge(conn, charge_id)
        account = None if doubtful is None else await find_account(conn, doubtful.account_id)
        charge = None if account is None else await find_charge(conn, account.id, charge_id)
    if doubtful is None or account is None or charge is None:
        raise ResourceNotFound("There is no charge in doubt with this id; `zembil doubt list` shows those there are.")
    outcome: Outcome = Failed(FailureCode.DECLINED, _BY_THE_OPERATOR)
    if succeeded:
        outcome = Succeeded(doubtful.amount_santim)
    payment = await payments.apply_outcome(db, account, charge, outcome, public_url=public_url, at=at)
    log.warning(
        "doubt.resolved",
        charge=ids.shown(Prefix.CHARGE, charge_id),
        payment=ids.shown(Prefix.PAYMENT, payment.id),
        account=account.id,
        succeeded=succeeded,
        reason=reason,
        payment_status=payment.status.value,
    )
    return doubtful, payment
