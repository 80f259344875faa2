"""Valid requests of every call that takes a body; what a hostile row changes in them is all that is wrong with it."""

import json
from typing import Any

PAYMENTS, WEBHOOKS, CLOCK = "/payments", "/webhooks", "/test/clock"
CUSTOMERS, KEYS = "/customers", "/keys"
REFUNDS, EVENTS = "/refunds", "/test/events"
UNKNOWN_PAYMENT = "pay_00000000000000000000000000"  # what is wrong with a body is told before what does not exist
CHARGE, REJECT = f"/payments/{UNKNOWN_PAYMENT}/charge", "/refunds/ref_00000000000000000000000000/reject"
EVERY_CALL = (PAYMENTS, WEBHOOKS, CLOCK, CUSTOMERS, KEYS, EVENTS)

_VALID: dict[str, dict[str, Any]] = {
    PAYMENTS: {"amount": 100, "currency": "ETB"},
    WEBHOOKS: {"url": "http://shop.example.et/hooks", "events": ["payment.completed"]},
    CLOCK: {"advance_seconds": 1},
    CUSTOMERS: {"email": "abebe@example.com"},
    KEYS: {"name": "Till", "role": "read_only"},
    REFUNDS: {"payment_id": UNKNOWN_PAYMENT, "amount": 100},
    EVENTS: {"type": "payment.created"},
    CHARGE: {"phone": "+251911223344", "mobile_money_provider": "telebirr"},
    REJECT: {"reason": "No."},
}


def valid(call: str, **changes: Any) -> dict[str, Any]:
    """A valid body of this call, with fields added or changed."""
    return {**_VALID[call], **changes}


def valid_json(call: str, more: str | bytes = b"") -> bytes:
    """A valid body of this call, with this text put behind its last field."""
    added = more.encode() if isinstance(more, str) else more
    return json.dumps(_VALID[call]).encode()[:-1] + added + b"}"


def written(body: dict[str, Any]) -> bytes:
    """The body in JSON, characters as they are."""
    return json.dumps(body, ensure_ascii=False).encode()
