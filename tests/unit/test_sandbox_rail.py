"""The simulated network: what each published number does, at every moment and after every restart alike."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from zembil.rails import calls
from zembil.rails.rail import (
    AwaitingCustomer,
    ChargeRequest,
    Failed,
    InProgress,
    NotFound,
    NotSent,
    Outcome,
    RefundRequest,
    Succeeded,
    Unknown,
    Wallet,
)
from zembil.rails.sandbox import HandsetAnswer, HandsetNotification, SandboxRail

RAIL = SandboxRail(Wallet.TELEBIRR)
AT = datetime(2026, 11, 21, 9, 54, tzinfo=UTC)
PERSON = "+251911223344"


def number(last: int) -> str:
    return f"+25190000000{last}"


def charge_of(phone: str, *, confirmed_at: datetime | None = None) -> ChargeRequest:
    return ChargeRequest(
        reference=uuid.UUID(int=7),
        amount_santim=10_000,
        phone=phone,
        title="Abebe's shop",
        started_at=AT,
        expires_at=AT + timedelta(hours=1),
        confirmed_at=confirmed_at,
        rail_reference=None,
    )


def refund_of(phone: str) -> RefundRequest:
    return RefundRequest(
        reference=uuid.UUID(int=8),
        amount_santim=5_000,
        phone=phone,
        charge_reference=uuid.UUID(int=7),
        charge_rail_reference=None,
        submitted_at=AT,
        rail_reference=None,
    )


async def test_the_number_that_falls_silent_is_found_paid() -> None:
    assert isinstance(await RAIL.start_charge(charge_of(number(5)), at=AT), Unknown)
    assert isinstance(await RAIL.query_charge(charge_of(number(5)), at=AT), Succeeded)
    assert isinstance(await RAIL.start_refund(refund_of(number(5)), at=AT), Unknown)
    later = AT + timedelta(seconds=5)
    assert isinstance(await RAIL.query_refund(refund_of(number(5)), at=later), Succeeded)


async def test_the_number_that_pays_late_times_out_first() -> None:
    charge = charge_of(number(7))
    prompted = await RAIL.query_charge(charge, at=AT + timedelta(seconds=119))
    assert prompted == AwaitingCustomer(prompted.rail_reference, timedelta(seconds=1))  # type: ignore[union-attr]
    timed_out = await RAIL.query_charge(charge, at=AT + timedelta(seconds=120))
    assert isinstance(timed_out, Failed)
    assert (timed_out.code, timed_out.news_after) == ("timeout", timedelta(minutes=59))
    for seconds, kind in ((59, Failed), (60, Succeeded)):
        told = await RAIL.query_charge(charge, at=charge.expires_at + timedelta(seconds=seconds))
        assert isinstance(told, kind)
    # One that was prompted just before its payment's end still times out before the money comes.
    hurried = replace(charge, expires_at=AT + timedelta(seconds=10))
    assert isinstance(await RAIL.query_charge(hurried, at=AT + timedelta(seconds=179)), Failed)
    assert isinstance(await RAIL.query_charge(hurried, at=AT + timedelta(seconds=180)), Succeeded)


def test_the_number_that_tells_twice_tells_out_of_order() -> None:
    charge = charge_of(number(6))
    assert RAIL.owed_notifications(charge, at=AT) == ()
    told: list[Outcome] = []
    for body in RAIL.owed_notifications(charge, at=AT + timedelta(seconds=1)):
        notification = RAIL.parse_notification(body)
        assert notification is not None
        assert notification.reference == charge.reference
        told.append(notification.outcome)
    kinds = [type(outcome) for outcome in told]
    assert all(kinds.count(kind) >= 2 for kind in (AwaitingCustomer, InProgress, Succeeded))
    assert kinds.index(InProgress) < kinds.index(AwaitingCustomer)
    assert kinds.index(Succeeded) < len(kinds) - 1 - kinds[::-1].index(InProgress)
    for other in (number(0), number(5), PERSON):
        assert RAIL.owed_notifications(charge_of(other), at=AT + timedelta(days=1)) == ()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"null", b'{"type":"network","step":"paid"}', b'{"type":"bank"}', b"\xff"]
)
def test_a_notification_without_sense_is_none(body: bytes) -> None:
    assert RAIL.parse_notification(body) is None


def test_the_handset_cannot_say_that_money_came() -> None:
    notification = HandsetNotification(uuid.UUID(int=7), HandsetAnswer.APPROVE)
    parsed = RAIL.parse_notification(msgspec.json.encode(notification))
    assert parsed is not None
    assert isinstance(parsed.outcome, InProgress)
    assert {answer.value for answer in HandsetAnswer} == {"approve", "decline", "insufficient_funds", "no_answer"}


async def test_what_could_not_be_sent_is_not_found_when_asked() -> None:
    assert isinstance(await RAIL.start_charge(charge_of(number(8)), at=AT), NotSent)
    assert isinstance(await RAIL.query_charge(charge_of(number(8)), at=AT), NotFound)
    assert isinstance(await RAIL.start_refund(refund_of(number(8)), at=AT), NotSent)
    assert isinstance(await RAIL.query_refund(refund_of(number(8)), at=AT), NotFound)


@pytest.mark.parametrize(
    ("phone", "code"), [(number(9), "provider_rejected"), (number(1), "insufficient_funds"), (PERSON, None)]
)
async def test_a_refund_is_settled_within_two_seconds_without_a_person(phone: str, code: str | None) -> None:
    assert isinstance(await RAIL.start_refund(refund_of(phone), at=AT), InProgress)
    assert isinstance(await RAIL.query_refund(refund_of(phone), at=AT), InProgress)
    outcome = await RAIL.query_refund(refund_of(phone), at=AT + timedelta(seconds=1))
    if code is None:
        assert isinstance(outcome, Succeeded)
        assert outcome.amount_santim == 5_000
    else:
        assert isinstance(outcome, Failed)
        assert outcome.code == code


@pytest.mark.parametrize(
    ("phone", "seconds", "confirmed"),
    [(PERSON, 100, True), (number(4), 100, True), (number(7), 100, True), (number(0), 1, False), (number(5), 0, False)],
)
async def test_a_prompt_is_taken_back_while_it_waits(phone: str, seconds: int, confirmed: bool) -> None:
    assert await RAIL.cancel_charge(charge_of(phone), at=AT + timedelta(seconds=seconds)) is confirmed
    assert not await RAIL.cancel_charge(charge_of(PERSON, confirmed_at=AT), at=AT)


# Calls


async def test_a_connector_that_breaks_is_what_nobody_knows() -> None:
    async def broken() -> Outcome:
        raise KeyError("result")

    async def not_sent() -> Outcome:
        return NotSent("no connection")

    async def broken_confirmation() -> bool:
        raise KeyError("result")

    assert isinstance(await calls.started(broken()), Unknown)
    assert isinstance(await calls.asked(broken()), Unknown)
    assert await calls.confirmed(broken_confirmation()) is False
    # A question that did not get through says nothing of the charge; an order that did not leave was not given.
    assert isinstance(await calls.started(not_sent()), NotSent)
    assert isinstance(await calls.asked(not_sent()), Unknown)
