"""What a sandbox lets a merchant decide about a payment, where in life the customer and the rail do."""

import uuid
from datetime import datetime

from zembil.accounts.model import Account
from zembil.db.pool import Connection
from zembil.errors import InvalidState, ResourceNotFound
from zembil.payments import operations, queries
from zembil.payments.model import CancellationReason, Charge, ChargeState, FailureCode, Payment, PaymentStatus
from zembil.rails.rail import AwaitingCustomer, Cancelled, Failed, InProgress, Outcome, Succeeded, Wallet

PAYS = "+251900000000"  # the sandbox's number that pays, for payments that name no phone


async def complete_payment(
    conn: Connection, account: Account, payment_id: uuid.UUID, *, public_url: str, at: datetime
) -> Payment:
    """The customer pays: by the open charge, or by one begun now. Raises ResourceNotFound, InvalidState."""
    payment, charge = await _lock_pending(conn, account, payment_id)
    charge = charge or await begin_charge(conn, account, payment, at=at)
    outcomes = (AwaitingCustomer(), InProgress(), Succeeded(payment.amount_santim))
    return await hear(conn, account, charge, *outcomes, public_url=public_url, at=at)


async def fail_payment(
    conn: Connection, account: Account, payment_id: uuid.UUID, code: FailureCode, *, public_url: str, at: datetime
) -> Payment:
    """The payment fails for good, also if its customer could have tried again. Raises as complete_payment."""
    payment, charge = await _lock_pending(conn, account, payment_id)
    if charge is not None:
        payment = await hear(conn, account, charge, Failed(code.value, "SANDBOX"), public_url=public_url, at=at)
    if payment.status is PaymentStatus.PENDING:
        payment = await operations.fail_payment_in(conn, account, payment, code, public_url=public_url, at=at)
    return payment


async def cancel_payment(
    conn: Connection, account: Account, payment_id: uuid.UUID, *, public_url: str, at: datetime
) -> Payment:
    """The customer does not want to pay. Raises as complete_payment."""
    payment, charge = await _lock_pending(conn, account, payment_id)
    if charge is not None:
        payment = await hear(conn, account, charge, Cancelled("SANDBOX"), public_url=public_url, at=at)
    if payment.status is PaymentStatus.PENDING:
        payment = await operations.cancel_payment_in(
            conn, account, payment_id, CancellationReason.CUSTOMER, public_url=public_url, at=at
        )
    return payment


async def resolve_charge(
    conn: Connection, account: Account, charge_id: uuid.UUID, *, succeeded: bool, public_url: str, at: datetime
) -> Payment:
    """What nobody knows of a charge is known now. Raises ResourceNotFound, InvalidState if it is not in doubt."""
    found = await queries.find_charge(conn, account.id, charge_id)
    payment = found and await queries.lock_payment(conn, account.id, found.payment_id)
    charge = await queries.find_charge(conn, account.id, charge_id)
    if payment is None or charge is None:
        raise ResourceNotFound
    if charge.state not in (ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW):
        raise InvalidState("This charge is not in doubt; GET its payment to see what became of it.")
    if charge.received_santim is not None:
        raise InvalidState("Another amount came by this charge; only the operator can have it returned.")
    outcome = Succeeded(payment.amount_santim) if succeeded else Failed(FailureCode.DECLINED.value, "SANDBOX")
    return await hear(conn, account, charge, outcome, public_url=public_url, at=at)


async def begin_charge(
    conn: Connection, account: Account, payment: Payment, *, phone: str | None = None, at: datetime
) -> Charge:
    """A charge over the simulated rail that no simulated network was told of."""
    wallet = Wallet(payment.mobile_money_provider or Wallet.TELEBIRR)
    phone = phone or payment.phone or PAYS
    begun = await operations.open_charge(conn, account, payment, wallet, phone=phone, pushed=True, at=at)
    return begun.charge


async def hear(
    conn: Connection, account: Account, charge: Charge, *outcomes: Outcome, public_url: str, at: datetime
) -> Payment:
    """What the rail said, one after the other; answers the payment as it is then."""
    for outcome in outcomes:
        await operations.apply_outcome_in(conn, account, charge, outcome, public_url=public_url, at=at)
    payment = await queries.find_payment(conn, account.id, charge.payment_id)
    if payment is None:
        raise RuntimeError("a charge belongs to a payment")
    return payment


async def _lock_pending(conn: Connection, account: Account, payment_id: uuid.UUID) -> tuple[Payment, Charge | None]:
    """A pending payment, held, and its open charge."""
    payment = await queries.lock_payment(conn, account.id, payment_id)
    if payment is None:
        raise ResourceNotFound
    if payment.status is not PaymentStatus.PENDING:
        raise InvalidState(f"This payment is {payment.status.value}; only a pending one can be decided.")
    if payment.open_charge_id is None:
        return payment, None
    return payment, await queries.find_charge(conn, account.id, payment.open_charge_id)
