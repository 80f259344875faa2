"""The sandbox rail: a simulated network on which the phone number decides what happens (decisions, section 7).

It keeps no state. What has become of a charge follows from its number and its age, so a process that dies and starts
again finds the same network. Only the simulated handset, where a person decides, notifies.
"""

import uuid
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from zembil.rails.rail import (
    AwaitingCustomer,
    Cancelled,
    ChargeRequest,
    Failed,
    InProgress,
    Notification,
    NotSent,
    Outcome,
    Succeeded,
    Wallet,
)

_A_MOMENT = timedelta(milliseconds=500)  # what a quick person, and then a quick network, takes
_NO_ANSWER_AFTER = timedelta(seconds=120)


def _waits_for_the_person(charge: ChargeRequest, *, at: datetime) -> Outcome:
    return AwaitingCustomer(_receipt(charge)) if charge.confirmed_at is None else _is_paid(charge, at=at)


def _succeeds(charge: ChargeRequest, *, at: datetime) -> Outcome:
    return _after_a_moment(charge, at=at) or _is_paid(charge, at=at)


def _declines(charge: ChargeRequest, *, at: datetime) -> Outcome:
    return _after_a_moment(charge, at=at) or Cancelled("SANDBOX_DECLINED")


def _mistypes_the_pin(charge: ChargeRequest, *, at: datetime) -> Outcome:
    return _after_a_moment(charge, at=at) or Failed("wrong_pin", "SANDBOX_PIN")


def _has_no_funds(charge: ChargeRequest, *, at: datetime) -> Outcome:
    del charge, at
    return Failed("insufficient_funds", "SANDBOX_BALANCE")


def _never_answers(charge: ChargeRequest, *, at: datetime) -> Outcome:
    left = _NO_ANSWER_AFTER - (at - charge.started_at)
    return AwaitingCustomer(_receipt(charge), left) if left > timedelta(0) else Failed("timeout", "SANDBOX_NO_ANSWER")


def _cannot_be_reached(charge: ChargeRequest, *, at: datetime) -> Outcome:
    del charge, at
    return NotSent("The simulated network cannot be reached.")


def _after_a_moment(charge: ChargeRequest, *, at: datetime) -> Outcome | None:
    left = _A_MOMENT - (at - charge.started_at)
    return AwaitingCustomer(_receipt(charge), left) if left > timedelta(0) else None


def _is_paid(charge: ChargeRequest, *, at: datetime) -> Outcome:
    if charge.confirmed_at is None:
        return InProgress(_receipt(charge), _A_MOMENT)
    left = _A_MOMENT - (at - charge.confirmed_at)
    return (
        InProgress(_receipt(charge), left) if left > timedelta(0) else Succeeded(charge.amount_santim, _receipt(charge))
    )


def _receipt(charge: ChargeRequest) -> str:
    return f"SBX{charge.reference.hex[-10:].upper()}"


class _Script(Protocol):
    def __call__(self, charge: ChargeRequest, *, at: datetime) -> Outcome: ...


_SCRIPTS: dict[str, _Script] = {
    "+251900000000": _succeeds,
    "+251900000001": _has_no_funds,
    "+251900000002": _declines,
    "+251900000003": _mistypes_the_pin,
    "+251900000004": _never_answers,
    "+251900000008": _cannot_be_reached,
}


class HandsetAnswer(StrEnum):
    """What a person can press on the simulated handset."""

    APPROVE = "approve"
    DECLINE = "decline"
    INSUFFICIENT_FUNDS = "insufficient_funds"


class HandsetNotification(msgspec.Struct, frozen=True):
    """What the simulated handset sends."""

    reference: uuid.UUID
    answer: HandsetAnswer


_ANSWERS: dict[HandsetAnswer, Outcome] = {
    HandsetAnswer.APPROVE: InProgress(news_after=_A_MOMENT),
    HandsetAnswer.DECLINE: Cancelled("SANDBOX_DECLINED"),
    HandsetAnswer.INSUFFICIENT_FUNDS: Failed("insufficient_funds", "SANDBOX_BALANCE"),
}


class SandboxRail:
    """A wallet whose customers are simulated."""

    def __init__(self, wallet: Wallet) -> None:
        self._wallet = wallet

    @property
    def wallet(self) -> Wallet:
        return self._wallet

    @property
    def test_phones(self) -> frozenset[str]:
        return frozenset(f"+25190000000{digit}" for digit in range(10))

    @staticmethod
    def waits_for_the_person(phone: str) -> bool:
        """Whether a charge of this number is decided on the simulated handset."""
        return phone not in _SCRIPTS

    async def start_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        return await self.query_charge(charge, at=at)

    async def query_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        return _SCRIPTS.get(charge.phone, _waits_for_the_person)(charge, at=at)

    def parse_notification(self, body: bytes) -> Notification | None:
        try:
            told = msgspec.json.decode(body, type=HandsetNotification)
        except msgspec.DecodeError:
            return None
        return Notification(told.reference, _ANSWERS[told.answer])
