"""What is pure about people: passwords, codes, where sign-in leads, how times are said."""

import asyncio
import time
import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from argon2 import PasswordHasher
from pyotp.totp import TOTP

from zembil.accounts import codes, passwords
from zembil.accounts.model import Role
from zembil.accounts.permissions import Permission
from zembil.dashboard import navigation
from zembil.dashboard.forms import Form
from zembil.dashboard.rendering import ago, browser_name, exact
from zembil.dashboard.visits import our_path
from zembil.errors import ServiceUnavailable

NOW = datetime(2026, 11, 21, 9, 54, 29, tzinfo=UTC)


def test_nobodys_password_costs_as_much_as_everybodys() -> None:
    assert not PasswordHasher().check_needs_rehash(passwords.NOBODYS)


@pytest.mark.parametrize(
    "password", ["five words in a row", "ሰማይ ምድር ውሃ እሳት ነፋስ", "p" * 3 + "aßword 1234!", "x y z 1 2 3 " * 8]
)
def test_a_long_password_of_any_letters_is_good(password: str) -> None:
    assert list(passwords.faults(password, email="almaz@example.et")) == []


async def test_the_longest_password_is_right_however_a_keyboard_composes_it() -> None:
    chosen = "éàüñôï ç" * (passwords.LENGTH_MAX // 8)
    typed, hasher = unicodedata.normalize("NFD", chosen), passwords.Passwords()
    assert list(passwords.faults(typed)) == []
    async with hasher.turn() as turn:
        assert await turn.is_right(typed, await turn.hashed(typed))
        assert not await turn.is_right(f"{chosen}x", await turn.hashed(chosen))


async def test_two_check_passwords_at_once_few_wait_and_the_rest_are_told_at_once_to_come_again() -> None:
    hasher, gate = passwords.Passwords(), asyncio.Event()
    at_once, most = 0, 0

    async def check() -> str:
        nonlocal at_once, most
        try:
            async with hasher.turn():
                at_once += 1
                most = max(most, at_once)
                await gate.wait()
                at_once -= 1
        except ServiceUnavailable as refused:
            return f"refused for {dict(refused.headers)['Retry-After']} s"
        return "checked"

    tries = [asyncio.create_task(check()) for _ in range(40)]
    done, _ = await asyncio.wait(tries, timeout=1)
    assert [task.result() for task in done] == ["refused for 1 s"] * 8  # without waiting for anybody
    gate.set()
    assert sorted(await asyncio.gather(*tries)) == ["checked"] * 32 + ["refused for 1 s"] * 8
    assert most == 2


async def test_nobody_waits_for_ever_for_a_turn_to_check_a_password() -> None:
    hasher, gate = passwords.Passwords(waiting_seconds_max=0.2), asyncio.Event()

    async def stays() -> None:
        async with hasher.turn():
            await gate.wait()

    stuck = [asyncio.create_task(stays()) for _ in range(2)]
    await asyncio.sleep(0)
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable, match="in a moment"):
        async with hasher.turn():
            pass
    assert 0.2 <= time.monotonic() - began < 5
    gate.set()
    await asyncio.gather(*stuck)
    async with hasher.turn() as turn:
        assert await turn.is_right("five words", await turn.hashed("five words"))


@pytest.mark.parametrize(
    "password", ["", "eleven chrs", "x" * 129, "abababababab", "Password1234", "almaz.tesfaye.1", "123456789012"]
)
def test_a_password_that_is_quickly_guessed_has_exactly_one_fault(password: str) -> None:
    assert len(list(passwords.faults(password, email="almaz.tesfaye@example.et"))) == 1


def test_a_code_is_taken_in_its_step_and_the_ones_beside_it() -> None:
    secret = codes.new_secret()
    step = int(NOW.timestamp()) // 30
    for steps_off, expected in {-2: None, -1: step - 1, 0: step, 1: step + 1, 2: None}.items():
        code = TOTP(secret).generate_otp(step + steps_off)
        assert codes.step_of(secret, f"{code[:3]} {code[3:]}", at=NOW) == expected


def test_recovery_codes_are_ten_different_ones_bound_to_their_user() -> None:
    new = codes.new_recovery_codes()
    mine, other = UUID(int=1), UUID(int=2)
    assert len({codes.recovery_code_hash(mine, code) for code in new}) == 10
    assert codes.recovery_code_hash(mine, new[0].upper().replace("-", " ")) == codes.recovery_code_hash(mine, new[0])
    assert codes.recovery_code_hash(mine, new[0]) != codes.recovery_code_hash(other, new[0])
    assert codes.recovery_code_hash(mine, "123456") is None


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        ("/dashboard/live/payments?status=failed&q=a%20b", "/dashboard/live/payments?status=failed&q=a%20b"),
        ("/dashboard", "/dashboard"),
        ("/dashboardx", "/dashboard"),
        ("/dashboard//evil.example", "/dashboard"),
        ("/dashboard/../p/x", "/dashboard"),
        ("/dashboard\n", "/dashboard"),
        ("//evil.example/dashboard", "/dashboard"),
        ("https://evil.example/dashboard", "/dashboard"),
        ("/dashboard@evil.example", "/dashboard"),
        ("", "/dashboard"),
    ],
)
def test_sign_in_leads_to_pages_of_ours_only(wanted: str, leads_to: str) -> None:
    assert our_path(wanted) == leads_to


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"), (59, "just now"), (60, "1 minute ago"), (3599, "59 minutes ago"), (3600, "1 hour ago"),
        (86_399, "23 hours ago"), (86_400, "1 day ago"), (90 * 86_400, "90 days ago"),
        (-1, "in a moment"), (-61, "in 1 minute"), (-7200, "in 2 hours"),
    ],
)  # fmt: skip
def test_times_are_said_as_people_say_them(seconds: int, words: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == words


def test_the_exact_time_is_the_merchant_s() -> None:
    assert exact(NOW, timezone(timedelta(hours=3), "EAT")) == "21 Nov 2026, 12:54:29 EAT"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("Mozilla/5.0 (Linux; Android 13) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18 like Mac OS X) Version/18.0 Safari/604.1", "Safari on iPhone"),
        ("", "A browser"),
    ],
)
def test_a_browser_is_called_by_its_name(user_agent: str, name: str) -> None:
    assert browser_name(user_agent) == name


def test_a_form_tells_every_fault_beside_its_field() -> None:
    form = Form(
        [("name", "  "), ("role", "owner"), ("count", "1e3"), ("day", "2026-02-30"), ("event", "x"), ("text", "a\0b")]
    )
    assert form.text("name", "a name") == form.text("text", "a text") == ""
    assert form.choice("role", Role, "a role") is None
    assert form.whole_number("count", "a number", least=1, most=9) is None
    assert form.day("day", "a day") is None
    form.choices("event", ["payment.created"], "an event")
    assert form.errors == {
        "name": "a name", "text": "a text", "role": "a role", "count": "a number", "day": "a day", "event": "an event",
    }  # fmt: skip


def test_the_menu_shows_pages_that_are_there_to_those_who_may_open_them() -> None:
    there = {"": Permission.VIEW, "/payments": Permission.VIEW, "/settings/api-keys": Permission.MANAGE_KEYS}

    def shown(role: Role) -> list[tuple[str, bool]]:
        groups = navigation.menu(there, role, livemode=True, here="/payments/pay_1", base="/dashboard/live")
        return [(entry.path, entry.is_here) for group in groups for entry in group.entries]

    for_everybody = [("/dashboard/live", False), ("/dashboard/live/payments", True)]
    assert shown(Role.READ_ONLY) == for_everybody
    assert shown(Role.ADMIN) == [*for_everybody, ("/dashboard/live/settings/api-keys", False)]
