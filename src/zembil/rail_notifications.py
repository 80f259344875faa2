"""Receives what rails report and hands it to the charge or the refund concerned.

In the sandbox the handset on the payment page is the reporter. Reports of real networks will come in over HTTP.
"""

from zembil.accounts.model import Account
from zembil.db.pool import reading, transaction
from zembil.payments import queries
from zembil.payments.charger import Charger
from zembil.payments.model import Payment
from zembil.rails import rail_for
from zembil.rails.rail import Notification, Wallet
from zembil.refunds import operations as refunds
from zembil.refunds.queries import find_refund


async def receive(charger: Charger, account: Account, wallet: Wallet, body: bytes) -> Payment | None:
    """Apply a notification; answers the payment, or None if the notification concerns no charge of this account."""
    rail = rail_for(wallet, livemode=account.livemode)
    notification = rail.parse_notification(body) if rail else None
    if notification is None:
        return None
    async with reading(charger.db) as conn:
        charge = await queries.find_charge(conn, account.id, notification.reference)
    if charge is None:
        await _receive_of_refund(charger, account, wallet, notification)
        return None
    if charge.rail is not wallet:
        return None
    return await charger.apply(account, charge, notification.outcome)


async def _receive_of_refund(charger: Charger, account: Account, wallet: Wallet, notification: Notification) -> None:
    async with transaction(charger.db) as conn:
        refund = await find_refund(conn, account.id, notification.reference)
        charge = refund and await queries.find_charge(conn, account.id, refund.charge_id)
        if refund is None or charge is None or charge.rail is not wallet:
            return
        await refunds.apply_outcome(conn, account, refund, notification.outcome, at=charger.clock.now())
    charger.bell.ring()
