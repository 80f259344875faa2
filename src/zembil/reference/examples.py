"""An example of each body, as a reader would send it to a sandbox."""

from typing import Any

from msgspec import Struct

from zembil.customers.api import CreateCustomer, UpdateCustomer
from zembil.management.keys import CreateKey, RollKey
from zembil.payments.api import CreatePayment
from zembil.payments.charge_api import CancelPayment, ChargePayment
from zembil.refunds.api import ApproveRefund, CreateRefund, RejectRefund
from zembil.sandbox_tools.api import AdvanceClock, DecidePayment, FailPayment, MakeEvent, ResolveCharge
from zembil.webhooks.api import ChangeEndpoint, RegisterEndpoint, RotateSecret
from zembil.webhooks.delivery_api import Recover, SendTestEvent

EXAMPLES: dict[type[Struct], dict[str, Any]] = {
    CreatePayment: {
        "amount": 1500.00,
        "currency": "ETB",
        "customer": {"email": "abebe@example.com", "phone": "+251911223344", "name": "Abebe Kebede"},
        "description": "Order 1042",
        "callback_url": "https://shop.example/thanks",
        "metadata": {"order": "1042"},
    },
    ChargePayment: {"phone": "+251900000000", "mobile_money_provider": "telebirr"},
    CancelPayment: {},
    CreateRefund: {
        "payment_id": "pay_01kag9zj3s9qv5d3x7c8m2n4p6",
        "amount": 500.00,
        "reason": "One of three was sent back",
        "metadata": {"order": "1042"},
    },
    ApproveRefund: {},
    RejectRefund: {"reason": "Already given back in cash"},
    CreateCustomer: {
        "email": "abebe@example.com",
        "phone": "+251911223344",
        "name": "Abebe Kebede",
        "metadata": {"tier": "gold"},
    },
    UpdateCustomer: {"name": "Abebe K. Kebede", "metadata": {"tier": None}},
    RegisterEndpoint: {
        "url": "https://shop.example/webhooks",
        "events": ["payment.completed", "refund.completed"],
        "description": "The shop",
    },
    ChangeEndpoint: {"events": ["*"], "status": "enabled"},
    RotateSecret: {"overlap_seconds": 86400},
    SendTestEvent: {"type": "payment.created"},
    Recover: {"since": "2026-11-21T09:54:00Z", "dry_run": True},
    CreateKey: {"name": "Till 3", "role": "developer"},
    RollKey: {"overlap_seconds": 86400},
    AdvanceClock: {"advance_seconds": 3600},
    MakeEvent: {"type": "payment.completed"},
    ResolveCharge: {"outcome": "succeeded"},
    DecidePayment: {},
    FailPayment: {"failure_code": "insufficient_funds"},
}
