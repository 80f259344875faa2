"""The sandbox rail: a simulated network on which the phone number decides what happens (decisions, section 7).

It keeps no state. What has become of a charge or a refund follows from its number and its age, so a process that dies
and starts again finds the same network. It notifies of what a person presses on the simulated handset, and of what the
number whose notifications come twice and out of order has to tell.
"""

import uuid
from collections.abc import Sequence
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
    NotFound,
    Notification,
    NotSent,
    Outcome,
    RefundRequest,
    Succeeded,
    Unknown,
    Wallet,
)

_A_MOMENT = timedelta(milliseconds=500)  # what a quick person, and then a quick network, takes
_NO_ANSWER_AFTER = timedelta(seconds=120)
_MONEY_AFTER = timedelta(seconds=60)  # after the payment's end, where money comes late


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


def _pays_late(charge: ChargeRequest, *, at: datetime) -> Outcome:
    gone_quiet_at = charge.started_at + _NO_ANSWER_AFTER
    left = max(charge.expires_at, gone_quiet_at) + _MONEY_AFTER - at
    if left <= timedelta(0):
        return Succeeded(charge.amount_santim, _receipt(charge))
    if at < gone_quiet_at:
        return AwaitingCustomer(_receipt(charge), gone_quiet_at - at)
    return Failed("timeout", "SANDBOX_NO_ANSWER", news_after=left)


def _is_found_paid(charge: ChargeRequest, *, at: datetime) -> Outcome:
    del at
    return Succeeded(charge.amount_santim, _receipt(charge))


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


def _receipt(of: ChargeRequest | RefundRequest) -> str:
    return f"SBX{of.reference.hex[-20:].upper()}"  # all that is random in it, so that no two are alike


class _Script(Protocol):
    def __call__(self, charge: ChargeRequest, *, at: datetime) -> Outcome: ...


_FALLS_SILENT, _TELLS_TWICE, _UNREACHABLE = "+251900000005", "+251900000006", "+251900000008"
_SCRIPTS: dict[str, _Script] = {
    "+251900000000": _succeeds,
    "+251900000001": _has_no_funds,
    "+251900000002": _declines,
    "+251900000003": _mistypes_the_pin,
    "+251900000004": _never_answers,
    _FALLS_SILENT: _is_found_paid,
    _TELLS_TWICE: _succeeds,
    "+251900000007": _pays_late,
    _UNREACHABLE: _cannot_be_reached,
    "+251900000009": _succeeds,
}
_REFUND_REFUSALS = {
    "+251900000001": Failed("insufficient_funds", "SANDBOX_BALANCE"),
    "+251900000009": Failed("provider_rejected", "SANDBOX_REFUND"),
}


class HandsetAnswer(StrEnum):
    """What a person can press on the simulated handset."""

    APPROVE = "approve"
    DECLINE = "decline"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    NO_ANSWER = "no_answer"  # as if the time to answer had passed


class HandsetNotification(msgspec.Struct, frozen=True, tag="handset"):
    """What the simulated handset sends."""

    reference: uuid.UUID
    answer: HandsetAnswer


_ANSWERS: dict[HandsetAnswer, Outcome] = {
    HandsetAnswer.APPROVE: InProgress(news_after=_A_MOMENT),
    HandsetAnswer.DECLINE: Cancelled("SANDBOX_DECLINED"),
    HandsetAnswer.INSUFFICIENT_FUNDS: Failed("insufficient_funds", "SANDBOX_BALANCE"),
    HandsetAnswer.NO_ANSWER: Failed("timeout", "SANDBOX_NO_ANSWER"),
}


class Step(StrEnum):
    """How far a charge has come, as the simulated network tells it."""

    PROMPTED = "prompted"
    CONFIRMED = "confirmed"
    PAID = "paid"


class NetworkNotification(msgspec.Struct, frozen=True, tag="network"):
    """What the simulated network sends of its own accord."""

    reference: uuid.UUID
    step: Step
    amount_santim: int

    def outcome(self) -> Outcome:
        match self.step:
            case Step.PROMPTED:
                return AwaitingCustomer()
            case Step.CONFIRMED:
                return InProgress()
            case Step.PAID:
                return Succeeded(self.amount_santim)


# Everything twice, and the earlier after the later.
_OUT_OF_ORDER = (Step.CONFIRMED, Step.PROMPTED, Step.CONFIRMED, Step.PAID, Step.CONFIRMED, Step.PROMPTED, Step.PAID)

_notification = msgspec.json.Decoder(HandsetNotification | NetworkNotification)


class SandboxRail:
    """A wallet whose customers are simulated."""

    def __init__(self, wallet: Wallet) -> None:
        self._wallet = wallet

    @property
    def wallet(self) -> Wallet:
        return self._wallet

    @property
    def test_phones(self) -> frozenset[str]:
        return frozenset(_SCRIPTS)

    @staticmethod
    def waits_for_the_person(phone: str) -> bool:
        """Whether a charge of this number is decided on the simulated handset."""
        return phone not in _SCRIPTS

    async def start_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        if charge.phone == _FALLS_SILENT:
            return Unknown("The simulated network took the charge and then said nothing.")
        return self._standing(charge, at=at)

    async def query_charge(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        standing = self._standing(charge, at=at)
        return NotFound() if isinstance(standing, NotSent) else standing

    async def cancel_charge(self, charge: ChargeRequest, *, at: datetime) -> bool:
        return isinstance(self._standing(charge, at=at), AwaitingCustomer)

    def _standing(self, charge: ChargeRequest, *, at: datetime) -> Outcome:
        return _SCRIPTS.get(charge.phone, _waits_for_the_person)(charge, at=at)

    async def start_refund(self, refund: RefundRequest, *, at: datetime) -> Outcome:
        if refund.phone == _FALLS_SILENT:
            return Unknown("The simulated network took the refund and then said nothing.")
        if refund.phone == _UNREACHABLE:
            return NotSent("The simulated network cannot be reached.")
        del at
        return InProgress(_receipt(refund), _A_MOMENT)

    async def query_refund(self, refund: RefundRequest, *, at: datetime) -> Outcome:
        if refund.phone == _UNREACHABLE:
            return NotFound()
        left = _A_MOMENT - (at - refund.submitted_at)
        if left > timedelta(0):
            return InProgress(_receipt(refund), left)
        return _REFUND_REFUSALS.get(refund.phone) or Succeeded(refund.amount_santim, _receipt(refund))

    def owed_notifications(self, charge: ChargeRequest, *, at: datetime) -> Sequence[bytes]:
        if charge.phone != _TELLS_TWICE or _after_a_moment(charge, at=at):
            return ()
        told = (NetworkNotification(charge.reference, step, charge.amount_santim) for step in _OUT_OF_ORDER)
        return [msgspec.json.encode(notification) for notification in told]

    def parse_notification(self, body: bytes) -> Notification | None:
        try:
            told = _notification.decode(body)
        except msgspec.DecodeError:
            return None
        outcome = _ANSWERS[told.answer] if isinstance(told, HandsetNotification) else told.outcome()
        return Notification(told.reference, outcome)
