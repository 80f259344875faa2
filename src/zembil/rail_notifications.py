"""Receives what rails report and hands it to the charge concerned.

In the sandbox the handset on the payment page is the reporter. Reports of real networks will come in over HTTP.
"""

from zembil.accounts.model import Account
from zembil.db.pool import reading
from zembil.payments import queries
from zembil.payments.charger import Charger
from zembil.payments.model import Payment
from zembil.rails import rail_for
from zembil.rails.rail import Wallet


async def receive(charger: Charger, account: Account, wallet: Wallet, body: bytes) -> Payment | None:
    """Apply a notification; answers the payment, or None if the notification concerns nothing of this account."""
    rail = rail_for(wallet, livemode=account.livemode)
    notification = rail.parse_notification(body) if rail else None
    if notification is None:
        return None
    async with reading(charger.db) as conn:
        charge = await queries.find_charge(conn, account.id, notification.reference)
    if charge is None or charge.rail is not wallet:
        return None
    return await charger.apply(account, charge, notification.outcome)
