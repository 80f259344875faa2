"""Makes an event of any type happen in a sandbox: real rows, through the same states as in life."""

import uuid
from datetime import datetime

from zembil.accounts.model import Account, Actor, ActorKind
from zembil.customers.operations import CustomerChange, CustomerOrder, create_customer, update_customer
from zembil.db.pool import Connection
from zembil.payments.model import FailureCode, Payment
from zembil.payments.operations import COUNT_SLOTS, PaymentOrder, new_payment
from zembil.payments.queries import insert_payments
from zembil.rails.rail import AwaitingCustomer, Failed, InProgress, Outcome, Succeeded
from zembil.refunds import operations as refunds
from zembil.refunds.model import SYSTEM, Refund
from zembil.refunds.operations import RefundOrder
from zembil.sandbox_tools import payments, queries
from zembil.webhooks.model import EventType

_AMOUNT_SANTIM = 10_000
_SYSTEM = Actor(ActorKind.SYSTEM, SYSTEM)
_NEVER_ANSWERS = "+251900000004"


async def make_event(
    conn: Connection, account: Account, event_type: EventType, *, public_url: str, at: datetime
) -> bytes:
    """Bring about an event of this type, with whatever has to come before it; answers its payload."""
    kind = event_type.value.partition(".")[0]
    if kind == "payment":
        object_id = await _payment_event(conn, account, event_type, public_url=public_url, at=at)
    elif kind == "refund":
        object_id = await _refund_event(conn, account, event_type, public_url=public_url, at=at)
    else:
        object_id = await _customer_event(conn, account, event_type, at=at)
    return await queries.get_payload(conn, account.id, object_id, event_type)


async def _payment_event(
    conn: Connection, account: Account, event_type: EventType, *, public_url: str, at: datetime
) -> uuid.UUID:
    payment = await _created(conn, account, public_url=public_url, at=at)
    match event_type:
        case EventType.PAYMENT_PENDING:
            charge = await payments.begin_charge(conn, account, payment, phone=_NEVER_ANSWERS, at=at)
            await payments.hear(conn, account, charge, AwaitingCustomer(), public_url=public_url, at=at)
        case EventType.PAYMENT_PROCESSING:
            charge = await payments.begin_charge(conn, account, payment, at=at)
            told = (AwaitingCustomer(), InProgress())
            await payments.hear(conn, account, charge, *told, public_url=public_url, at=at)
        case EventType.PAYMENT_COMPLETED:
            await payments.complete_payment(conn, account, payment.id, public_url=public_url, at=at)
        case EventType.PAYMENT_FAILED:
            code = FailureCode.INSUFFICIENT_FUNDS
            await payments.fail_payment(conn, account, payment.id, code, public_url=public_url, at=at)
        case EventType.PAYMENT_CANCELLED:
            await payments.cancel_payment(conn, account, payment.id, public_url=public_url, at=at)
        case _:
            pass  # it was created
    return payment.id


async def _created(conn: Connection, account: Account, *, public_url: str, at: datetime) -> Payment:
    order = PaymentOrder(amount_santim=_AMOUNT_SANTIM, description="A payment for a test event")
    new = new_payment(order, account, public_url=public_url, at=at)
    await insert_payments(conn, [new], slot=new.payment.id.int % COUNT_SLOTS)
    return new.payment


async def _refund_event(
    conn: Connection, account: Account, event_type: EventType, *, public_url: str, at: datetime
) -> uuid.UUID:
    payment = await _created(conn, account, public_url=public_url, at=at)
    await payments.complete_payment(conn, account, payment.id, public_url=public_url, at=at)
    order = RefundOrder(payment_id=payment.id, amount_santim=None, reason="A refund for a test event")
    refund = await refunds.request_refund(conn, account, order, by=SYSTEM, at=at)
    if event_type is EventType.REFUND_CREATED:
        return refund.id
    refund = await refunds.approve_refund(conn, account, refund.id, by=_SYSTEM, allow_self_approval=True, at=at)
    match event_type:
        case EventType.REFUND_COMPLETED:
            await _settle(conn, account, refund, Succeeded(refund.amount_santim), at=at)
        case EventType.REFUND_FAILED:
            await _settle(conn, account, refund, Failed("provider_rejected", "SANDBOX"), at=at)
        case _:
            pass  # it was approved
    return refund.id


async def _settle(conn: Connection, account: Account, refund: Refund, outcome: Outcome, *, at: datetime) -> None:
    await refunds.submit_refund(conn, account, refund, at=at)
    await refunds.apply_outcome(conn, account, refund, outcome, at=at)


async def _customer_event(conn: Connection, account: Account, event_type: EventType, *, at: datetime) -> uuid.UUID:
    order = CustomerOrder(email="abebe@example.com", phone=None, name="Abebe", metadata={})
    customer = await create_customer(conn, account, order, at=at)
    if event_type is EventType.CUSTOMER_UPDATED:
        await update_customer(conn, account, customer.id, CustomerChange(name="Abebe Bikila"), at=at)
    return customer.id
