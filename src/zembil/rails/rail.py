"""The port to a rail: what Zembil asks of a mobile-money network, and what it may answer.

A rail translates and transports; it never sees the database. A charge is committed before its rail is called, and what
the rail said is applied after. What nobody knows is `Unknown`, which is never failure.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol


class Wallet(StrEnum):
    """`mobile_money_provider` on the wire."""

    TELEBIRR = "telebirr"
    MPESA = "mpesa"

    @property
    def brand(self) -> str:
        """As its network writes it."""
        return _BRANDS[self]


_BRANDS = {Wallet.TELEBIRR: "telebirr", Wallet.MPESA: "M-PESA"}


@dataclass(frozen=True, slots=True)
class ChargeRequest:
    """A charge as a rail knows it."""

    reference: uuid.UUID  # ours, made and committed before the call
    amount_santim: int
    phone: str
    title: str  # what the customer reads in the prompt
    started_at: datetime
    expires_at: datetime  # of the payment
    confirmed_at: datetime | None  # when we first heard that the customer confirmed
    rail_reference: str | None


@dataclass(frozen=True, slots=True)
class RefundRequest:
    """A refund as a rail knows it: money that goes back the way it came."""

    reference: uuid.UUID  # ours, made and committed before the call; the same if it has to be sent again
    amount_santim: int
    phone: str
    charge_reference: uuid.UUID
    charge_rail_reference: str | None
    submitted_at: datetime  # when it was sent, or was being sent when we were cut off
    rail_reference: str | None


@dataclass(frozen=True, slots=True)
class AwaitingCustomer:
    """The prompt reached the customer's phone."""

    rail_reference: str | None = None
    news_after: timedelta | None = None  # when it is worth asking; None: the rail will tell


@dataclass(frozen=True, slots=True)
class InProgress:
    """The customer confirmed; the rail works on it."""

    rail_reference: str | None = None
    news_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    amount_santim: int
    rail_reference: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The rail's definite no."""

    code: str  # a failure code of decisions, section 2
    raw_code: str | None = None
    news_after: timedelta | None = None  # a time-out may be overtaken by money: when it is worth asking once more


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The customer declined at the prompt."""

    raw_code: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """Certainly nothing reached the rail: no connection, or a clear "not now". Never the answer to a question."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotFound:
    """The rail does not know the charge; soon after a call that may only mean "not yet"."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows: a time-out, a cut connection, an answer without sense."""

    reason: str


Outcome = AwaitingCustomer | InProgress | Succeeded | Failed | Cancelled | NotSent | NotFound | Unknown


@dataclass(frozen=True, slots=True)
class Notification:
    """What a rail sent us of its own accord, translated."""

    reference: uuid.UUID
    outcome: Outcome


class Rail(Protocol):
    """What every connector does."""

    @property
    def wallet(self) -> Wallet: ...

    @property
    def test_phones(self) -> frozenset[str]:
        """Numbers that belong to nobody and so need no protection from too many prompts."""
        ...

    async def start_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        """Prompt the customer. Never raises for what a network does: that is an Outcome."""
        ...

    async def query_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        """Ask what became of a charge. Never raises for what a network does: that is an Outcome."""
        ...

    async def cancel_charge(self, charge: ChargeRequest, *, at: datetime) -> bool:
        """Take back the prompt; answers whether the rail has confirmed it, so that no money will come."""
        ...

    async def start_refund(self, refund: RefundRequest, *, at: datetime) -> Outcome:
        """Return money. Never raises for what a network does: that is an Outcome."""
        ...

    async def query_refund(self, refund: RefundRequest, *, at: datetime) -> Outcome:
        """Ask what became of a refund. Never raises for what a network does: that is an Outcome."""
        ...

    def owed_notifications(self, charge: ChargeRequest, *, at: datetime) -> Sequence[bytes]:
        """What a simulated network has to send by now; real ones send of their own accord."""
        ...

    def parse_notification(self, body: bytes) -> Notification | None:
        """What a notification says, or None if it makes no sense."""
        ...
