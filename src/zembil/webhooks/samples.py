"""What a test event tells of: an object of the right form that does not exist."""

import uuid
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from zembil import ids, instants
from zembil.ids import Prefix
from zembil.webhooks.model import EventType

_LIFETIME = timedelta(hours=1)
_NO_MERCHANT = 0  # no account has this number, so the link opens nothing


def sample_object(event_type: EventType, object_id: uuid.UUID, *, public_url: str, at: datetime) -> dict[str, Any]:
    """The object of a test event of this type, as if it had been created at `at`."""
    kind, _, what = event_type.value.partition(".")
    match kind:
        case "payment":
            return _payment(what, object_id, public_url=public_url, at=at)
        case "refund":
            return _refund(what, object_id, at=at)
        case _:
            return _customer(object_id, at=at)


def _payment(what: str, payment_id: uuid.UUID, *, public_url: str, at: datetime) -> dict[str, Any]:
    ended = what in ("completed", "failed", "cancelled")
    more: dict[str, Any] = {}
    if what == "completed":
        more = {"completed_at": instants.shown(at), "transaction_id": ids.shown(Prefix.TRANSACTION, ids.new_id(at))}
    elif what == "failed":
        more = {"failure_code": "insufficient_funds", "failure_message": "The customer does not have enough money."}
    elif what == "cancelled":
        more = {"cancellation_reason": "customer"}
    return {
        "id": ids.shown(Prefix.PAYMENT, payment_id),
        "status": what if ended else "pending",
        "amount": Decimal("1500.00"),
        "currency": "ETB",
        "customer": {"email": "abebe@example.com", "phone": "+251911223344"},
        "description": "A test event",
        "payment_method": "mobile_money",
        "created_at": instants.shown(at),
        "expires_at": instants.shown(at + _LIFETIME),
        "payment_link": f"{public_url}/p/{ids.link_token(_NO_MERCHANT, payment_id, bytes(16))}",
        "livemode": False,
        "amount_refunded": Decimal("0.00"),
        **more,
    }


def _refund(what: str, refund_id: uuid.UUID, *, at: datetime) -> dict[str, Any]:
    status = {"created": "pending_approval", "approved": "approved", "completed": "completed", "failed": "failed"}[what]
    user = ids.shown(Prefix.USER, ids.new_id(at))
    more: dict[str, Any] = {} if what == "created" else {"approved_by": user, "approved_at": instants.shown(at)}
    if what == "completed":
        more["completed_at"] = instants.shown(at)
    elif what == "failed":
        more |= {"failure_code": "provider_unavailable", "failure_message": "The network could not be reached."}
    return {
        "id": ids.shown(Prefix.REFUND, refund_id),
        "payment_id": ids.shown(Prefix.PAYMENT, ids.new_id(at)),
        "status": status,
        "amount": Decimal("1500.00"),
        "currency": "ETB",
        "reason": "A test event",
        "created_at": instants.shown(at),
        "requested_by": user,
        "livemode": False,
        **more,
    }


def _customer(customer_id: uuid.UUID, *, at: datetime) -> dict[str, Any]:
    return {
        "id": ids.shown(Prefix.CUSTOMER, customer_id),
        "email": "abebe@example.com",
        "phone": "+251911223344",
        "name": "Abebe",
        "metadata": {},
        "created_at": instants.shown(at),
        "updated_at": instants.shown(at),
        "livemode": False,
    }
