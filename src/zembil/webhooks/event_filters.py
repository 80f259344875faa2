"""Query parameters that the lists of events and of deliveries share."""

from typing import Any, Protocol
from uuid import UUID

from zembil import ids
from zembil.ids import Prefix
from zembil.web.parameters import Parameters
from zembil.webhooks.model import EventType

_OBJECTS = (Prefix.PAYMENT, Prefix.REFUND, Prefix.CUSTOMER)


class OfEvents(Protocol):
    """A filter that asks for events, or for their deliveries."""

    @property
    def event_type(self) -> EventType | None: ...
    @property
    def object_id(self) -> UUID | None: ...
    @property
    def created_from(self) -> Any: ...
    @property
    def created_to(self) -> Any: ...


def taken_type(parameters: Parameters) -> EventType | None:
    return parameters.take("type", _type, f"Give one of: {', '.join(EventType)}.")


def taken_object(parameters: Parameters) -> UUID | None:
    return parameters.take(
        "object", _object_id, "Give the id of a payment, a refund or a customer: pay_…, ref_…, cus_…"
    )


def fingerprinted(wanted: OfEvents) -> dict[str, Any]:
    """What a cursor remembers of the filters."""
    return {
        "type": wanted.event_type,
        "object": wanted.object_id,
        "from": wanted.created_from,
        "to": wanted.created_to,
    }


def _type(text: str) -> EventType | None:
    return EventType(text) if text in list(EventType) else None


def _object_id(text: str) -> UUID | None:
    return next((found for prefix in _OBJECTS if (found := ids.parsed(prefix, text)) is not None), None)
