"""Customers, and what merchants see of them."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zembil import ids, instants
from zembil.ids import Prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """A person whom a merchant remembers."""

    account_id: int
    id: uuid.UUID
    email: str | None
    phone: str | None
    name: str | None
    external_id: str | None
    metadata: dict[str, str]
    sequence: int  # of its last event
    updated_at: datetime

    @property
    def created_at(self) -> datetime:
        return ids.created_at(self.id)


def shown(customer: Customer, *, livemode: bool) -> dict[str, Any]:
    """The customer as merchants see it (contract, Customer; decisions, section 4)."""
    document: dict[str, Any] = {
        "id": ids.shown(Prefix.CUSTOMER, customer.id),
        "email": customer.email,
        "phone": customer.phone,
        "name": customer.name,
        "metadata": customer.metadata,
        "created_at": instants.shown(customer.created_at),
        "updated_at": instants.shown(customer.updated_at),
        "livemode": livemode,
    }
    if customer.external_id is not None:
        document["external_id"] = customer.external_id
    return document


def previous_attributes(before: Customer, after: Customer, *, livemode: bool) -> dict[str, Any]:
    """What the changed attributes were: only the changed keys, an unset one as None; metadata key by key."""
    old, new = shown(before, livemode=livemode), shown(after, livemode=livemode)
    changed = {
        name: old.get(name) for name in ("email", "phone", "name", "external_id") if old.get(name) != new.get(name)
    }
    keys = sorted(before.metadata.keys() | after.metadata.keys())
    metadata = {key: before.metadata.get(key) for key in keys if before.metadata.get(key) != after.metadata.get(key)}
    return changed | ({"metadata": metadata} if metadata else {})
