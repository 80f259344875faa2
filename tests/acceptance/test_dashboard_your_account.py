"""Your account, against whoever has a stolen session: what needs the password, what is told of it, what ends when."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from tests.support.dashboard import (
    OPERATOR,
    PASSWORD,
    SECOND_STEP,
    User,
    Visitor,
    app_code,
    errors,
    fetch,
    form_token,
    heading,
    in_database,
    new_link,
    new_user,
    notice,
)
from tests.support.gateway import Gateway, Merchant
from zembil.accounts import team
from zembil.accounts.model import LinkKind, Role
from zembil.accounts.sign_in import token_hash
from zembil.db.pool import Connection, connection

HOME, SIGN_IN, CODE = "/dashboard/sandbox", "/dashboard/sign-in", "/dashboard/code"
ACCOUNT, LOG = f"{HOME}/your-account", f"{HOME}/settings/audit-log"
WRONG, NEW_PASSWORD = "This is not your password.", "another five words here"


@pytest.fixture
def arrives(gateway: Gateway) -> Iterator[Callable[[User], Visitor]]:
    """Somebody comes in a browser of their own, and signs in."""
    made: list[Visitor] = []

    def arrive(user: User) -> Visitor:
        made.append(Visitor(gateway.origin))
        assert made[-1].signs_in(user).status_code == 303
        return made[-1]

    yield arrive
    for visitor in made:
        visitor.close()


@pytest.fixture
def user(gateway: Gateway, merchant: Merchant) -> User:
    return new_user(gateway, merchant)


@pytest.fixture
def visitor(arrives: Callable[[User], Visitor], user: User) -> Visitor:
    return arrives(user)


@pytest.fixture
def auditor(gateway: Gateway, merchant: Merchant, arrives: Callable[[User], Visitor]) -> Visitor:
    """A colleague who reads the audit log."""
    return arrives(new_user(gateway, merchant, name="Auditor"))


def told(auditor: Visitor, action: str) -> list[str]:
    """What the audit log says of such an action, newest first: who, what, and the details, without the seal."""
    shown = auditor.opens(f"{LOG}?action={action}").text
    rows = re.findall(r'<tr>\n<td data-label="When">.*?</td>(.*?)<td data-label="Seal">', shown, re.DOTALL)
    return [re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", row))).strip() for row in rows]


def changes_password(visitor: Visitor, current: str = PASSWORD) -> httpx2.Response:
    return visitor.sends(ACCOUNT, f"{ACCOUNT}/password", current_password=current, new_password=NEW_PASSWORD)


# What opens the account


@pytest.mark.parametrize("given", [{}, {"password_for_email": "a guess at it"}])
def test_another_e_mail_address_needs_the_password(visitor: Visitor, user: User, given: dict[str, str]) -> None:
    other = f"mallory-{time.time_ns()}@example.et"
    refused = visitor.sends(ACCOUNT, f"{ACCOUNT}/name", name="Almaz", email=other, **given)
    assert (refused.status_code, errors(refused)) == (400, [WRONG])
    assert 'aria-describedby="password_for_email-hint password_for_email-error"' in refused.text
    assert f'value="{user.email}"' in visitor.get(ACCOUNT).text
    done = visitor.sends(ACCOUNT, f"{ACCOUNT}/name", name="Almaz", email=other, password_for_email=PASSWORD)
    assert done.status_code == 303
    assert f'value="{other}"' in visitor.get(ACCOUNT).text


def test_another_name_needs_no_password(visitor: Visitor, user: User) -> None:
    assert visitor.sends(ACCOUNT, f"{ACCOUNT}/name", name="Almaz T.", email=user.email).status_code == 303
    assert 'value="Almaz T."' in visitor.get(ACCOUNT).text


def test_the_second_step_is_set_up_with_the_password_only(visitor: Visitor) -> None:
    for password in ("", "a guess at it"):
        refused = visitor.sets_up_second_step(password=password)
        assert (refused.status_code, errors(refused)) == (400, [WRONG])
    assert "Set up the second step" in visitor.get(ACCOUNT).text
    assert visitor.sets_up_second_step().status_code == 303  # the code is not used up by what was refused


def test_guesses_in_a_stolen_session_count_like_guesses_at_the_door(
    gateway: Gateway, merchant: Merchant, arrives: Callable[[User], Visitor], auditor: Visitor
) -> None:
    user = new_user(gateway, merchant)
    stolen, away = arrives(user), Visitor(gateway.origin)
    for number in range(10):
        email = f"mallory-{number}@example.et"
        sent = stolen.sends(ACCOUNT, f"{ACCOUNT}/name", name="x", email=email, password_for_email=f"guess {number}")
        assert errors(sent) == [WRONG]
        assert errors(changes_password(stolen, f"guess {number}")) == [WRONG]
    for answer in (
        stolen.sends(ACCOUNT, f"{ACCOUNT}/name", name="x", email="m@example.et", password_for_email=PASSWORD),
        stolen.sets_up_second_step(),
        changes_password(stolen),
        away.signs_in(user),
    ):
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 900
        assert "Too many sign-ins have failed." in answer.text
    (entry,) = told(auditor, "user.locked_out")  # once, however often it is tried afterwards
    assert "system by itself locked somebody out after wrong guesses Almaz after: wrong passwords" in entry
    assert f"address: {stolen.address}" in entry
    away.close()


def test_of_two_sessions_that_set_up_the_second_step_at_once_each_confirms_its_own_secret(
    arrives: Callable[[User], Visitor], user: User
) -> None:
    mine, stolen = arrives(user), arrives(user)
    shown, offered = mine.begins_second_step(), stolen.begins_second_step()
    assert shown != offered
    assert mine.begins_second_step() == shown  # a page that is opened again, as phones do, offers the same
    for browser, secret in ((stolen, shown), (mine, offered)):
        refused = browser.sends(SECOND_STEP, current_password=PASSWORD, code=app_code(secret))
        assert (refused.status_code, len(errors(refused))) == (400, 1)
    assert mine.sends(SECOND_STEP, current_password=PASSWORD, code=app_code(shown)).status_code == 303
    assert stolen.get(HOME).headers["location"].startswith(CODE)
    assert stolen.sends(CODE, code=app_code(offered, 1)).status_code == 401
    assert stolen.sends(CODE, code=app_code(shown, 1)).status_code == 303


def test_a_secret_that_waits_to_be_confirmed_is_stored_sealed_and_opens_in_its_session_only(
    gateway: Gateway, arrives: Callable[[User], Visitor], user: User
) -> None:
    mine, stolen = arrives(user), arrives(user)
    secret = mine.begins_second_step()
    stored = fetch(gateway, "SELECT sessions::text AS stored FROM sessions WHERE user_id = $1", user.id)
    assert all(secret not in row["stored"] and secret.encode().hex() not in row["stored"] for row in stored)
    copied = """
        UPDATE sessions SET proposed_totp = (SELECT max(proposed_totp) FROM sessions WHERE user_id = $1)
        WHERE user_id = $1
    """
    fetch(gateway, copied, user.id)
    assert stolen.begins_second_step() != secret
    assert mine.begins_second_step() == secret


# What is told


def test_a_recovery_code_that_is_used_stands_in_the_audit_log(
    arrives: Callable[[User], Visitor], visitor: Visitor, user: User, auditor: Visitor
) -> None:
    shown = visitor.opens(visitor.sets_up_second_step().headers["location"])
    codes = re.findall(r"\b[a-z2-9]{4}-[a-z2-9]{4}-[a-z2-9]{4}\b", shown.text)
    again = arrives(user)
    assert again.sends(CODE, code=codes[0]).status_code == 303
    assert visitor.sends(ACCOUNT, f"{ACCOUNT}/second-step/remove", code=codes[1]).status_code == 303
    last, first = told(auditor, "user.recovery_code_used")
    assert "Almaz in the dashboard used a recovery code" in first
    assert f"left: 9 address: {again.address} browser: Firefox on Android" in first
    assert "left: 8" in last
    assert codes[0] not in auditor.opens(LOG).text
    assert len(told(auditor, "user.second_step_on")) == len(told(auditor, "user.second_step_off")) == 1


def test_ten_wrong_codes_stand_in_the_audit_log_as_one_lock_out(
    arrives: Callable[[User], Visitor], visitor: Visitor, user: User, auditor: Visitor
) -> None:
    visitor.sets_up_second_step()
    again = arrives(user)
    wrong = f"{(int(visitor.code()) + 333_333) % 1_000_000:06}"
    for number in range(12):
        assert again.sends(CODE, code=wrong).status_code == (401 if number < 10 else 429)
    (entry,) = told(auditor, "user.locked_out")
    assert "after: wrong codes" in entry


def test_a_session_that_is_ended_stands_in_the_audit_log_with_how(
    arrives: Callable[[User], Visitor], user: User, auditor: Visitor
) -> None:
    here, there, elsewhere = (arrives(user) for _ in range(3))
    ends = re.findall(r'action="([^"]*/sessions/[^"]*)"', here.get(ACCOUNT).text)
    assert here.sends(ACCOUNT, ends[0]).status_code == 303  # the latest of the others
    assert there.sends(HOME, "/dashboard/sign-out").status_code == 303
    out, ended = told(auditor, "user.session_ended")
    assert f"how: signed out from another browser address: {elsewhere.address}" in ended
    assert f"how: signed out address: {there.address}" in out
    other = arrives(user)
    assert changes_password(here).status_code == 303
    entry, *before = told(auditor, "user.session_ended")
    assert "Almaz in the dashboard signed a browser out" in entry
    assert f"how: new password address: {other.address} browser: Firefox on Android" in entry
    assert before == [out, ended]  # the browser in which it was changed goes on


# What ends with the old password


# The server sends away with 503 who waits for a row for 2 seconds; a little less leaves it the time to take the row.
WAITS_SECONDS_MAX = 1.7
WAITING = """
    WITH RECURSIVE waiting (pid) AS (
        SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))
        UNION
        SELECT a.pid FROM pg_stat_activity a JOIN waiting w ON w.pid = ANY (pg_blocking_pids(a.pid))
        WHERE a.datname = current_database()
    )
    SELECT count(*) FROM waiting
"""  # for whoever holds the row, or for one who waits for it before them


async def at_the_row_of(
    gateway: Gateway, user: User, *requests: Callable[[], httpx2.Response]
) -> list[httpx2.Response]:
    """Bring the requests, in this order, to where they wait for the person's row; then let all of them go on.

    On a slow machine the later ones may come when the first has waited too long: then all of them begin anew.
    """
    async with connection(gateway.database_url) as conn:
        for _ in range(10):
            running: list[asyncio.Task[httpx2.Response]] = []
            async with conn.transaction():
                await conn.execute("SELECT 1 FROM users WHERE id = $1 FOR NO KEY UPDATE", user.id)
                if await all_wait(conn, running, requests):
                    break
                for sent_away in await asyncio.gather(*running):  # while the row is held: none of them does anything
                    assert sent_away.status_code == 503
        else:
            pytest.fail("The requests never waited for the row together.")
    return list(await asyncio.gather(*running))


async def all_wait(
    conn: Connection, running: list[asyncio.Task[httpx2.Response]], requests: Sequence[Callable[[], httpx2.Response]]
) -> bool:
    """Begin one request after the other; whether all wait while the first still has time to go on."""
    own, waits_since = await conn.fetchval("SELECT pg_backend_pid()"), float("inf")
    for request in requests:
        running.append(asyncio.create_task(asyncio.to_thread(request)))
        while await conn.fetchval(WAITING, own) < len(running):
            if any(task.done() for task in running):
                return False
            await asyncio.sleep(0.02)
        waits_since = min(waits_since, time.monotonic())
    return time.monotonic() - waits_since < WAITS_SECONDS_MAX


@pytest.mark.parametrize("way", ["password", "name", "second step", "sign-in link"])
@pytest.mark.parametrize("is_changed_first", [True, False])
async def test_what_began_with_the_old_password_does_not_outlive_the_change(
    gateway: Gateway, arrives: Callable[[User], Visitor], user: User, way: str, is_changed_first: bool
) -> None:
    here, there = await asyncio.to_thread(lambda: (arrives(user), arrives(user)))
    if way == "password":
        there.client.cookies.delete("zembil-session")
        page, action, fields = SIGN_IN, SIGN_IN, {"email": user.email, "password": PASSWORD}
    elif way == "name":
        page, action, fields = ACCOUNT, f"{ACCOUNT}/name", {"name": "Mallory", "email": user.email}
    elif way == "second step":
        secret = await asyncio.to_thread(there.begins_second_step)
        page, action = SECOND_STEP, SECOND_STEP
        fields = {"current_password": PASSWORD, "code": app_code(secret)}
    else:
        page = action = await asyncio.to_thread(new_link, gateway, user, LinkKind.SIGN_IN)
        fields = {}
    forms = {who: form_token(await asyncio.to_thread(who.opens, of)) for who, of in ((here, ACCOUNT), (there, page))}
    change = {"form_token": forms[here], "current_password": PASSWORD, "new_password": NEW_PASSWORD}

    def changes() -> httpx2.Response:
        return here.client.post(f"{ACCOUNT}/password", data=change)

    def goes_on() -> httpx2.Response:
        return there.client.post(action, data={"form_token": forms[there], **fields})

    answers = await at_the_row_of(gateway, user, *([changes, goes_on] if is_changed_first else [goes_on, changes]))
    changed, other = answers if is_changed_first else reversed(answers)
    assert changed.status_code == 303
    assert other.status_code in ((401, 404, 409) if is_changed_first else (303,))
    assert not await asyncio.to_thread(there.is_signed_in)
    sessions = await asyncio.to_thread(fetch, gateway, "SELECT id FROM sessions WHERE user_id = $1", user.id)
    assert len(sessions) == 1  # the one in which it was changed
    if is_changed_first and way == "name":
        assert "Mallory" not in (await asyncio.to_thread(here.get, ACCOUNT)).text


async def test_a_code_that_was_on_its_way_opens_nothing_after_the_password_was_changed(
    gateway: Gateway, arrives: Callable[[User], Visitor], user: User
) -> None:
    here = await asyncio.to_thread(arrives, user)
    await asyncio.to_thread(here.sets_up_second_step)
    there = await asyncio.to_thread(arrives, user)
    code = {"form_token": form_token(await asyncio.to_thread(there.get, CODE)), "code": here.code()}
    change = {
        "form_token": form_token(await asyncio.to_thread(here.get, ACCOUNT)),
        "current_password": PASSWORD,
        "new_password": NEW_PASSWORD,
    }
    _, refused = await at_the_row_of(
        gateway,
        user,
        lambda: here.client.post(f"{ACCOUNT}/password", data=change),
        lambda: there.client.post(CODE, data=code),
    )
    assert refused.status_code == 409
    assert "Open the page again" in refused.text
    assert (await asyncio.to_thread(there.get, HOME)).status_code == 401


def sent_slowly(
    gateway: Gateway, visitor: Visitor, action: str, fields: dict[str, str], *, meanwhile: Callable[[], object]
) -> bytes:
    """Send a form but for its end; do something once its session was looked up; send the end. Answers the answer."""
    moved = """
        UPDATE sessions SET seen_at = now() - interval '2 minutes' WHERE token_hash = $1 RETURNING seen_at
    """
    is_seen = "SELECT 1 FROM sessions WHERE token_hash = $1 AND seen_at > $2"
    token = form_token(visitor.opens(ACCOUNT))
    body = urlencode({"form_token": token, **fields}).encode()
    address = urlsplit(str(visitor.client.base_url))
    head = (
        f"POST {action} HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: zembil-session={visitor.token}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    ((then,),) = fetch(gateway, moved, token_hash(visitor.token))
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as slow:
        slow.sendall(head.encode() + body[:-5])
        deadline = time.monotonic() + 10
        while not fetch(gateway, is_seen, token_hash(visitor.token), then):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        meanwhile()
        slow.sendall(body[-5:])
        return b"".join(iter(lambda: slow.recv(65536), b""))


def test_a_form_that_was_on_its_way_when_its_session_ended_does_nothing(
    gateway: Gateway, arrives: Callable[[User], Visitor], user: User
) -> None:
    here, stolen = arrives(user), arrives(user)

    def ends() -> None:
        assert changes_password(here).status_code == 303

    fields = {"name": "Mallory", "email": user.email}
    answer = sent_slowly(gateway, stolen, f"{ACCOUNT}/name", fields, meanwhile=ends)
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert b"You were signed out meanwhile." in answer
    assert "Mallory" not in here.get(ACCOUNT).text


@pytest.mark.parametrize(
    ("environment", "change", "said"),
    [
        ("sandbox", "role", b"Your role here is read-only"),
        ("sandbox", "second step on", b"The second step was set up meanwhile."),
        ("live", "second step off", b"Live pages need the second step"),
    ],
)
def test_a_form_that_was_on_its_way_does_what_its_sender_may_do_when_it_is_there(
    gateway: Gateway,
    arrives: Callable[[User], Visitor],
    user: User,
    auditor: Visitor,
    environment: str,
    change: str,
    said: bytes,
) -> None:
    here, other = arrives(user), arrives(user)
    if environment == "live":
        assert here.sets_up_second_step().status_code == 303

    def changes() -> None:
        if change == "role":
            at, merchant_id = datetime.now(UTC), user.merchant_id
            role = Role.READ_ONLY
            in_database(gateway, lambda db: team.change_role(db, merchant_id, user.id, role, by=OPERATOR, at=at))
        elif change == "second step on":
            assert other.sets_up_second_step().status_code == 303
        else:
            assert here.sends(ACCOUNT, f"{ACCOUNT}/second-step/remove", code=here.code()).status_code == 303

    action = f"/dashboard/{environment}/settings/api-keys/new"
    fields = {"role": "admin", "expires_at": ""}
    first = here.sends(ACCOUNT, action, name=f"At once {user.id}", **fields)
    assert first.status_code == 303  # such a form makes a key
    answer = sent_slowly(gateway, here, action, {**fields, "name": f"Later {user.id}"}, meanwhile=changes)
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert said in answer
    made = fetch(gateway, "SELECT name FROM api_keys WHERE name LIKE '%' || $1", str(user.id))
    assert [row["name"] for row in made] == [f"At once {user.id}"]
    assert told(auditor, "user.role_changed" if change == "role" else f"user.{change.replace(' ', '_')}")


# A flood at the door


def test_a_flood_of_sign_ins_keeps_nobody_from_working_who_is_signed_in(
    gateway: Gateway, visitor: Visitor, user: User
) -> None:
    door = [Visitor(gateway.origin) for _ in range(60)]
    tokens = [form_token(one.get(SIGN_IN)) for one in door]
    is_over = threading.Event()

    def guesses(number: int) -> set[tuple[int, str]]:
        answers: set[tuple[int, str]] = set()
        while not is_over.is_set():
            email = f"somebody-{number}-{time.time_ns()}@example.et"
            fields = {"form_token": tokens[number], "email": email, "password": "a guess at it", "next": ACCOUNT}
            answer = door[number].client.post(SIGN_IN, data=fields)
            assert answer.status_code in (401, 429, 503)
            if answer.status_code == 503:
                assert ["try again" in text for text in errors(answer)] == [True]
                assert f'value="{email}"' in answer.text  # what was typed stays, and so does where it leads
                assert f'name="next" value="{ACCOUNT}"' in answer.text
            answers.add((answer.status_code, answer.headers.get("retry-after", "")))
            is_over.wait(0.01)  # the guessers share this machine's cores with whoever works
        return answers

    seconds: list[float] = []
    with ThreadPoolExecutor(len(door)) as pool:
        flood = [pool.submit(guesses, number) for number in range(len(door))]
        try:
            time.sleep(0.5)
            for _ in range(10):
                began = time.monotonic()
                assert heading(visitor.get(HOME)) == "Home"
                seconds.append(time.monotonic() - began)
        finally:
            is_over.set()
    answers = set[tuple[int, str]]().union(*(one.result() for one in flood))
    assert {(401, ""), (503, "1")} <= answers
    assert max(seconds) < 12  # behind the guesses it would be their 15 seconds, and then a refusal
    assert door[0].signs_in(user).status_code == 303  # what was not checked counts against nobody
    for one in door:
        one.close()


def test_the_page_says_how_many_recovery_codes_are_left_and_how_to_have_new_ones(visitor: Visitor) -> None:
    shown = visitor.opens(visitor.sets_up_second_step().headers["location"])
    assert "Keep these recovery codes" in notice(shown)
    assert "10 recovery codes are left. For new ones, turn the second step off and set it up again." in shown.text
