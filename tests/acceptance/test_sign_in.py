"""The doors of the dashboard: who comes in, how, and what is refused (reliability T21, T24 to T32, T53)."""

import asyncio
import os
import re
import statistics
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from tests.acceptance.test_dev import sentences, zembil
from tests.support.dashboard import (
    OPERATOR,
    PASSWORD,
    User,
    Visitor,
    errors,
    fetch,
    form_token,
    heading,
    in_database,
    new_link,
    new_user,
)
from tests.support.gateway import Gateway, Merchant
from zembil.accounts import team
from zembil.accounts.model import LinkKind, Role
from zembil.config import Settings
from zembil.dashboard.pages import Dashboard
from zembil.db.clock import Clock
from zembil.db.pool import Database, connected
from zembil.errors import InvalidState
from zembil.payments.charger import Charger
from zembil.web.auth import KeyRing
from zembil.webhooks.sender import Bell

HOME, ACCOUNT, SIGN_IN, CODE = (
    "/dashboard/sandbox",
    "/dashboard/sandbox/your-account",
    "/dashboard/sign-in",
    "/dashboard/code",
)
NewVisitor = Callable[..., Visitor]


@pytest.fixture
def visitor_at(gateway: Gateway) -> Iterator[NewVisitor]:
    """Makes visitors."""
    made: list[Visitor] = []

    def new(address: str = "") -> Visitor:
        made.append(Visitor(gateway.origin, address))
        return made[-1]

    yield new
    for visitor in made:
        visitor.close()


@pytest.fixture
def visitor(visitor_at: NewVisitor) -> Visitor:
    return visitor_at()


@pytest.fixture
def user(gateway: Gateway, merchant: Merchant) -> User:
    return new_user(gateway, merchant)


# Coming in


def test_a_page_that_needs_a_session_asks_to_sign_in_and_leads_on_there(visitor: Visitor, user: User) -> None:
    asked = visitor.get(ACCOUNT)
    assert (asked.status_code, heading(asked)) == (401, "Sign in")
    let_in = visitor.sends(ACCOUNT, SIGN_IN, email=user.email, password=PASSWORD, next=ACCOUNT)
    assert (let_in.status_code, let_in.headers["location"]) == (303, ACCOUNT)
    assert heading(visitor.get(ACCOUNT)) == "Your account"


def test_an_email_is_known_in_any_case_and_with_spaces_around(visitor: Visitor, user: User) -> None:
    sent = visitor.sends(SIGN_IN, email=f" {user.email.upper()} ", password=PASSWORD)
    assert sent.status_code == 303


@pytest.mark.parametrize(
    "email",
    [
        "",
        "nobody",
        "nobody@example.et",
        "' OR 1=1 --",
        "a\0b@example.et",
        "x" * 5000,
        "\ud7ff\U0010ffff@example.et",
        "+".join("a" * 3000),
    ],
)
def test_whatever_is_typed_as_an_email_is_refused_alike(visitor: Visitor, email: str) -> None:
    refused = visitor.sends(SIGN_IN, email=email, password="a\0'; DROP TABLE users --")
    assert (refused.status_code, errors(refused)) == (
        401,
        ["E-mail and password do not belong together. Check both and try again."],
    )


def test_a_password_of_ten_megabytes_is_refused_before_it_is_read(visitor: Visitor, user: User) -> None:
    shown = visitor.get(SIGN_IN)
    body = {"form_token": form_token(shown), "email": user.email, "password": "x" * 10_000_000}
    with suppress(httpx2.TransportError):  # the connection may close before all of it is sent, which is an answer too
        assert visitor.client.post(SIGN_IN, data=body).status_code == 413
    assert visitor.get(SIGN_IN).status_code == 200


def test_known_and_unknown_emails_get_the_same_answer(visitor_at: NewVisitor, user: User) -> None:
    def refused(email: str) -> tuple[int, str]:
        answer = visitor_at().sends(SIGN_IN, email=email, password="not this one, surely")
        return answer.status_code, re.sub(r'value="\w{32}"', "", answer.text).replace(email, "")

    assert refused(user.email) == refused(user.email.replace("almaz", "selam"))


def test_an_unknown_email_takes_as_long_as_a_known_one(visitor: Visitor, user: User) -> None:
    tries = 200 if "ZEMBIL_PROVE" in os.environ else 8
    seconds: dict[str, list[float]] = {user.email: [], user.email.replace("almaz", "selam"): []}
    for _ in range(tries // 2):
        for email, taken in seconds.items():
            token = form_token(visitor.get(SIGN_IN))
            began = time.perf_counter()
            visitor.client.post(SIGN_IN, data={"form_token": token, "email": email, "password": "not this one"})
            taken.append(time.perf_counter() - began)
    known, unknown = (statistics.median(taken) for taken in seconds.values())
    assert unknown > known / 2  # without the same work it would be a fiftieth


# Guessing


def test_guessing_a_password_is_stopped_from_wherever_it_comes(
    gateway: Gateway, visitor_at: NewVisitor, merchant: Merchant, user: User
) -> None:
    visitors = [visitor_at() for _ in range(5)]
    for number in range(20):
        assert visitors[number % 5].signs_in(user, password=f"guess number {number}").status_code == 401
    refused = visitor_at().signs_in(user)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 900
    assert "Try again in" in errors(refused)[0]
    assert visitors[0].signs_in(new_user(gateway, merchant)).status_code == 303  # nobody else is kept out

    shift = "UPDATE failed_sign_ins SET failed_at = failed_at - interval '15 minutes' RETURNING 1"
    assert fetch(gateway, shift)
    assert visitor_at().signs_in(user).status_code == 303  # nor is the owner, for long


def test_many_guesses_at_once_are_no_more_than_one_after_the_other(visitor_at: NewVisitor, user: User) -> None:
    def guess(number: int) -> int:
        for _ in range(20):
            status = visitor_at().signs_in(user, password=f"guess number {number}").status_code
            if status != 503:  # a busy machine: it was not looked at, and is not counted
                return status
        return 503

    with ThreadPoolExecutor(25) as pool:
        statuses = list(pool.map(guess, range(25)))
    assert sorted(statuses) == [401] * 20 + [429] * 5


def test_an_address_that_fails_with_a_hundred_emails_is_stopped(
    gateway: Gateway, visitor_at: NewVisitor, user: User
) -> None:
    here = visitor_at()
    here.sends(SIGN_IN, email=f"first-{user.email}", password="a guess")
    # 99 more of the same try, whose e-mail nobody uses again.
    more = """
        INSERT INTO failed_sign_ins SELECT scope, failed_at FROM failed_sign_ins, generate_series(1, 99)
        WHERE failed_at = (SELECT max(failed_at) FROM failed_sign_ins) RETURNING 1
    """
    assert len(fetch(gateway, more)) == 2 * 99
    assert here.signs_in(user).status_code == 429
    assert visitor_at().signs_in(user).status_code == 303


def test_a_success_makes_the_failures_before_it_forgotten(visitor: Visitor, user: User) -> None:
    for _ in range(2):
        for number in range(12):
            assert visitor.signs_in(user, password=f"guess number {number}").status_code == 401
        assert visitor.signs_in(user).status_code == 303


# The second step


@pytest.fixture
def careful(visitor: Visitor, user: User) -> Visitor:
    """Somebody who has set up the second step."""
    visitor.signs_in(user)
    assert visitor.sets_up_second_step().status_code == 303
    return visitor


def half_way(visitor_at: NewVisitor, careful: Visitor, user: User) -> Visitor:
    """The same person in another browser, who has given the password."""
    again = visitor_at()
    again.secret = careful.secret
    assert again.signs_in(user).headers["location"].startswith(CODE)
    return again


def test_a_password_alone_opens_nothing_once_the_second_step_is_on(
    visitor_at: NewVisitor, careful: Visitor, user: User
) -> None:
    again = half_way(visitor_at, careful, user)
    for path in (HOME, ACCOUNT, "/dashboard/live"):
        assert again.get(path).headers["location"] == CODE
    half_token = again.token
    assert again.sends(CODE, code=again.code()).status_code == 303
    assert again.is_signed_in()
    assert again.token != half_token
    again.client.cookies.set("zembil-session", half_token, domain="127.0.0.1", path="/")
    assert not again.is_signed_in()


def test_live_pages_need_the_second_step(visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    assert visitor.get("/dashboard/live").headers["location"] == "/dashboard/live/your-account/second-step"
    visitor.sets_up_second_step()
    assert heading(visitor.get("/dashboard/live")) == "Home"


def test_a_session_from_before_the_second_step_opens_nothing_until_it_gives_a_code(
    visitor_at: NewVisitor, visitor: Visitor, user: User
) -> None:
    earlier = visitor_at()
    earlier.signs_in(user)
    team = f"{HOME}/settings/team"
    invitation = {"form_token": form_token(earlier.get(team)), "email": "mallory@example.et", "role": "admin"}
    visitor.signs_in(user)
    visitor.sets_up_second_step()
    for path in (HOME, ACCOUNT, team):
        assert earlier.get(path).headers["location"] == f"{CODE}?next={path}"
    assert earlier.client.post(team, data=invitation).headers["location"] == CODE
    assert "mallory@" not in visitor.get(team).text
    asked = earlier.get("/dashboard/live")
    assert asked.headers["location"] == f"{CODE}?next=/dashboard/live"
    earlier.secret = visitor.secret
    assert earlier.sends(asked.headers["location"], CODE, code=earlier.code()).status_code == 303
    assert heading(earlier.get("/dashboard/live")) == "Home"


def test_a_code_works_once(visitor_at: NewVisitor, careful: Visitor, user: User) -> None:
    first, second = (half_way(visitor_at, careful, user) for _ in range(2))
    code = first.code()
    assert first.sends(CODE, code=code).status_code == 303
    refused = second.sends(CODE, code=code)
    assert (refused.status_code, len(errors(refused))) == (401, 1)
    assert not second.is_signed_in()


def test_of_twenty_at_once_with_one_code_exactly_one_comes_in(
    visitor_at: NewVisitor, careful: Visitor, user: User
) -> None:
    browsers = [half_way(visitor_at, careful, user) for _ in range(8)]
    code = careful.code()
    tokens = [form_token(browser.get(CODE)) for browser in browsers]

    def give(number: int) -> int:
        browser = browsers[number % 8]
        fields = {"form_token": tokens[number % 8], "code": code}
        return browser.client.post(CODE, data=fields).status_code

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(give, range(20)))
    assert sum(browser.is_signed_in() for browser in browsers) == 1


def test_ten_wrong_codes_lock_the_second_step_for_a_while(
    gateway: Gateway, visitor_at: NewVisitor, careful: Visitor, user: User
) -> None:
    again = half_way(visitor_at, careful, user)
    wrong = f"{(int(again.code()) + 333_333) % 1_000_000:06}"
    for _ in range(10):
        assert again.sends(CODE, code=wrong).status_code == 401
    locked = again.sends(CODE, code=again.code())
    assert locked.status_code == 429
    assert "Too many wrong codes" in errors(locked)[0]
    fetch(gateway, "UPDATE users SET totp_locked_until = now() WHERE id = $1", user.id)
    assert again.sends(CODE, code=again.code(1)).status_code == 303


@pytest.mark.parametrize("code", ["", "12345", "1234567", "١٢٣٤٥٦", "12345\0", "abcd-efgh-jkmn", "x" * 5000])
def test_what_is_no_code_is_a_wrong_code(visitor_at: NewVisitor, careful: Visitor, user: User, code: str) -> None:
    assert half_way(visitor_at, careful, user).sends(CODE, code=code).status_code == 401


def test_a_recovery_code_replaces_the_phone_once(visitor_at: NewVisitor, visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    shown = visitor.opens(visitor.sets_up_second_step().headers["location"])
    codes = re.findall(r"\b[a-z2-9]{4}-[a-z2-9]{4}-[a-z2-9]{4}\b", shown.text)
    assert len(set(codes)) == 10
    assert codes[0] not in visitor.opens(ACCOUNT).text  # they are shown once
    again = half_way(visitor_at, visitor, user)
    assert again.sends(CODE, code=codes[0].upper()).status_code == 303
    assert half_way(visitor_at, visitor, user).sends(CODE, code=codes[0]).status_code == 401


def test_the_second_step_is_removed_with_a_code_only(careful: Visitor) -> None:
    path = f"{ACCOUNT}/second-step/remove"
    assert careful.sends(ACCOUNT, path, code="000000").status_code == 400
    assert careful.sends(ACCOUNT, path, code=careful.code()).status_code == 303
    assert careful.get("/dashboard/live").status_code == 303


# Sessions


def test_a_session_begins_with_a_token_of_its_own(visitor: Visitor, user: User) -> None:
    visitor.client.cookies.set("zembil-session", "chosen-by-somebody-else", domain="127.0.0.1", path="/")
    visitor.signs_in(user)
    first = visitor.token
    assert first != "chosen-by-somebody-else"
    assert len(first) >= 43
    visitor.signs_in(user)
    assert visitor.token != first
    visitor.client.cookies.set("zembil-session", first, domain="127.0.0.1", path="/")
    assert not visitor.is_signed_in()  # the browser's old session ended


def test_after_signing_out_the_token_opens_nothing(visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    token = visitor.token
    assert visitor.sends(HOME, "/dashboard/sign-out").headers["location"] == SIGN_IN
    assert visitor.token == ""
    visitor.client.cookies.set("zembil-session", token, domain="127.0.0.1", path="/")
    assert visitor.get(HOME).status_code == 401


def test_a_new_password_signs_every_other_browser_out(visitor_at: NewVisitor, user: User) -> None:
    here, there = visitor_at(), visitor_at()
    here.signs_in(user)
    there.signs_in(user)
    old, new = here.token, "ሰማይ ምድር ውሃ እሳት ነፋስ"
    wrong = here.sends(ACCOUNT, f"{ACCOUNT}/password", current_password="not mine", new_password=new)
    assert (wrong.status_code, errors(wrong)) == (400, ["This is not your password."])
    here.sends(ACCOUNT, f"{ACCOUNT}/password", current_password=PASSWORD, new_password=new)
    assert here.is_signed_in()
    assert here.token != old
    assert not there.is_signed_in()
    assert there.signs_in(user).status_code == 401
    assert there.signs_in(user, password=new).status_code == 303


@pytest.mark.parametrize("password", ["", "short", "aaaaaaaaaaaaaaa", "password1234", "x1" * 65])
def test_a_poor_password_is_refused_with_the_reason(visitor: Visitor, user: User, password: str) -> None:
    visitor.signs_in(user)
    refused = visitor.sends(ACCOUNT, f"{ACCOUNT}/password", current_password=PASSWORD, new_password=password)
    assert (refused.status_code, len(errors(refused))) == (400, 1)


def test_sessions_are_listed_and_ended_one_by_one(visitor_at: NewVisitor, user: User) -> None:
    here, there = visitor_at(), visitor_at()
    here.signs_in(user)
    there.signs_in(user)
    listed = here.get(ACCOUNT).text
    assert listed.count("Firefox on Android") == 2
    assert there.address in listed
    ends = re.findall(r'action="([^"]*/sessions/[^"]*)"', listed)
    assert len(ends) == 1
    assert here.sends(ACCOUNT, ends[0]).status_code == 303
    assert here.is_signed_in()
    assert not there.is_signed_in()
    assert here.sends(ACCOUNT, ends[0]).status_code == 404


def test_nobody_ends_the_session_of_another_person(
    gateway: Gateway, merchant: Merchant, visitor_at: NewVisitor, user: User
) -> None:
    mine, other, theirs = visitor_at(), visitor_at(), visitor_at()
    colleague = new_user(gateway, merchant)
    mine.signs_in(user)
    for browser in (other, theirs):
        browser.signs_in(colleague)
    (end,) = re.findall(r'action="([^"]*/sessions/[^"]*)"', other.get(ACCOUNT).text)
    assert mine.sends(ACCOUNT, end).status_code == 404
    assert theirs.is_signed_in()


def test_a_session_ends_when_idle_and_after_twelve_hours_all_the_same(
    gateway: Gateway, visitor_at: NewVisitor, user: User
) -> None:
    idle, long = visitor_at(), visitor_at()
    idle.signs_in(user)
    fetch(gateway, "UPDATE sessions SET seen_at = now() - interval '31 minutes' WHERE user_id = $1", user.id)
    assert not idle.is_signed_in()
    long.signs_in(user)
    lasts = (
        "SELECT max(expires_at - seen_at) AS lasts FROM sessions WHERE user_id = $1 AND seen_at > now() - $2::interval"
    )
    shown = fetch(gateway, lasts, user.id, timedelta(minutes=1))
    assert shown[0]["lasts"].total_seconds() == pytest.approx(12 * 3600, abs=2)
    fetch(gateway, "UPDATE sessions SET expires_at = now() WHERE user_id = $1", user.id)
    assert not long.is_signed_in()


def test_a_change_of_role_holds_at_once(gateway: Gateway, visitor: Visitor, user: User, merchant: Merchant) -> None:
    new_user(gateway, merchant)  # another admin
    visitor.signs_in(user)
    assert "is admin." in visitor.get(ACCOUNT).text
    in_database(
        gateway,
        lambda db: team.change_role(db, user.merchant_id, user.id, Role.READ_ONLY, by=OPERATOR, at=datetime.now(UTC)),
    )
    assert "is read-only." in visitor.get(ACCOUNT).text


def test_whoever_is_removed_is_out_at_once(gateway: Gateway, visitor: Visitor, user: User, merchant: Merchant) -> None:
    new_user(gateway, merchant)
    visitor.signs_in(user)
    in_database(gateway, lambda db: team.remove(db, user.merchant_id, user.id, by=OPERATOR, at=datetime.now(UTC)))
    assert not visitor.is_signed_in()
    assert visitor.signs_in(user).status_code == 401


def test_the_last_admin_stays_one(gateway: Gateway, user: User) -> None:
    with pytest.raises(InvalidState, match="last admin"):
        in_database(
            gateway,
            lambda db: team.change_role(
                db, user.merchant_id, user.id, Role.DEVELOPER, by=OPERATOR, at=datetime.now(UTC)
            ),
        )
    with pytest.raises(InvalidState, match="last admin"):
        in_database(gateway, lambda db: team.remove(db, user.merchant_id, user.id, by=OPERATOR, at=datetime.now(UTC)))


def test_of_two_last_admins_who_leave_at_once_one_stays(gateway: Gateway, merchant: Merchant, user: User) -> None:
    other = new_user(gateway, merchant)

    async def both(db: Database) -> list[Any]:
        leaving = (
            team.remove(db, user.merchant_id, who.id, by=OPERATOR, at=datetime.now(UTC)) for who in (user, other)
        )
        return await asyncio.gather(*leaving, return_exceptions=True)

    async def run() -> list[Any]:
        async with connected(gateway.database_url, connections_max=2) as db:
            return await both(db)

    assert sum(isinstance(result, InvalidState) for result in asyncio.run(run())) == 1


# Forms, frames, redirects


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
def test_a_form_of_another_site_changes_nothing(visitor: Visitor, user: User, headers: dict[str, str]) -> None:
    visitor.signs_in(user)
    fields = {"form_token": form_token(visitor.get(ACCOUNT)), "name": "Somebody else", "email": "evil@example.com"}
    assert visitor.client.post(f"{ACCOUNT}/name", data=fields, headers=headers).status_code == 403
    assert visitor.client.post("/dashboard/sign-out", data=fields, headers=headers).status_code == 403
    assert "Somebody else" not in visitor.get(ACCOUNT).text


def test_a_form_without_the_session_s_token_changes_nothing(visitor_at: NewVisitor, user: User) -> None:
    mine, theirs = visitor_at(), visitor_at()
    mine.signs_in(user)
    theirs.signs_in(user)
    for token in ("", "0" * 32, form_token(theirs.get(ACCOUNT)), form_token(visitor_at().get(SIGN_IN))):
        fields = {"form_token": token, "name": "Somebody else"}
        assert mine.client.post(f"{ACCOUNT}/name", data=fields).status_code == 403
    json = f'{{"form_token": "{form_token(mine.get(ACCOUNT))}", "name": "Somebody else"}}'
    assert mine.client.post(f"{ACCOUNT}/name", content=json, headers={"Content-Type": "text/plain"}).status_code == 403
    assert "Somebody else" not in mine.get(ACCOUNT).text


def test_nobody_is_signed_in_by_another_site_s_form(visitor_at: NewVisitor, user: User) -> None:
    theirs, mine = visitor_at(), visitor_at()
    fields = {"form_token": form_token(theirs.get(SIGN_IN)), "email": user.email, "password": PASSWORD}
    assert mine.client.post(SIGN_IN, data=fields).status_code == 403
    assert mine.token == ""


def test_no_page_may_be_framed_or_kept_or_tells_where_one_came_from(visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    for path in (
        SIGN_IN,
        CODE,
        "/dashboard",
        HOME,
        ACCOUNT,
        "/dashboard/live",
        "/dashboard/nothing",
        "/dashboard/link/x",
    ):
        headers = visitor.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_signing_in_leads_nowhere_else(visitor: Visitor, user: User) -> None:
    for place in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/dashboard/../p",
    ):
        assert visitor.signs_in(user, next=place).headers["location"] == "/dashboard"
        shown = visitor.client.get(SIGN_IN, params={"next": place})
        assert 'name="next" value="/dashboard"' in shown.text


def test_no_host_header_gets_into_a_redirect(visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    for path in ("/dashboard", "/dashboard/live"):
        headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
        assert visitor.get(path, headers=headers).headers["location"].startswith("/dashboard/")


def test_a_name_with_markup_is_shown_as_text(visitor: Visitor, user: User) -> None:
    visitor.signs_in(user)
    name = "<img src=x onerror=alert(1)>\"'"
    assert visitor.sends(ACCOUNT, f"{ACCOUNT}/name", name=name, email=user.email).status_code == 303
    page = visitor.get(ACCOUNT).text
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


# Links that work once


def test_a_sign_in_link_works_once_and_is_not_used_up_by_looking(
    gateway: Gateway, visitor_at: NewVisitor, user: User
) -> None:
    path = new_link(gateway, user, LinkKind.SIGN_IN)
    first, second = visitor_at(), visitor_at()
    for _ in range(2):
        assert first.get(path).status_code == 200
        assert first.client.head(path).status_code == 200
    token = form_token(second.get(path))
    assert first.sends(path).status_code == 303
    assert first.is_signed_in()
    assert second.client.post(path, data={"form_token": token}).status_code == 404
    assert heading(second.get(path)) == "Nothing is here"
    assert "start zembil dev again" in second.get(path).text
    assert "You are signed in here already" in first.get(path).text


def test_a_link_ends_with_its_time_and_with_a_newer_one(gateway: Gateway, visitor: Visitor, user: User) -> None:
    older, newer = (new_link(gateway, user, LinkKind.SIGN_IN) for _ in range(2))
    assert visitor.get(older).status_code == 404
    assert visitor.get(newer).status_code == 200
    fetch(gateway, "UPDATE user_links SET expires_at = now() WHERE user_id = $1", user.id)
    assert visitor.get(newer).status_code == 404


def test_a_sign_in_link_does_not_replace_the_second_step(
    gateway: Gateway, visitor_at: NewVisitor, careful: Visitor, user: User
) -> None:
    again = visitor_at()
    assert again.sends(new_link(gateway, user, LinkKind.SIGN_IN)).headers["location"].startswith(CODE)
    assert not again.is_signed_in()


def test_a_reset_link_sets_a_new_password_and_ends_every_session(
    gateway: Gateway, visitor_at: NewVisitor, user: User
) -> None:
    here, there = visitor_at(), visitor_at()
    there.signs_in(user)
    made = zembil(
        "user",
        "reset-link",
        user.email,
        settings={"ZEMBIL_DATABASE_URL": gateway.database_url, "ZEMBIL_PUBLIC_URL": gateway.origin},
    )
    path = made.stdout.strip().removeprefix(gateway.origin)
    assert path.startswith("/dashboard/link/")
    assert here.sends(path, new_password="short").status_code == 400
    assert here.sends(path, new_password="another five words here").headers["location"] == SIGN_IN
    assert not there.is_signed_in()
    assert here.signs_in(user, password="another five words here").status_code == 303
    assert there.get(path).status_code == 404


def test_an_invited_person_chooses_name_and_password(gateway: Gateway, visitor: Visitor) -> None:
    merchant, email = f"Shop {time.time_ns()}", f"abebe-{time.time_ns()}@example.et"
    gateway.new_merchant(merchant)
    settings = {"ZEMBIL_DATABASE_URL": gateway.database_url, "ZEMBIL_PUBLIC_URL": gateway.origin}
    made = zembil("user", "invite", email, "--merchant", merchant, settings=settings)
    path = made.stdout.strip().removeprefix(gateway.origin)
    assert heading(visitor.get(path)) == f"Welcome to {merchant}"
    assert errors(visitor.sends(path, name="", new_password="five words in a row")) == [
        "Say how you are called, in at most 200 characters."
    ]
    assert visitor.sends(path, name="አበበ", new_password=PASSWORD).status_code == 303
    assert visitor.signs_in(User(None, None, email)).status_code == 303
    assert "አበበ" in visitor.get(HOME).text
    assert sentences(zembil("user", "invite", email, "--merchant", merchant, settings=settings)) == [
        "This e-mail address belongs to somebody already."
    ]
    assert sentences(zembil("user", "invite", "x@example.et", "--merchant", "No such", settings=settings)) == [
        "There is no merchant of the name No such."
    ]


def test_whoever_was_invited_and_has_not_come_is_invited_again_from_the_command_line(
    gateway: Gateway, visitor: Visitor
) -> None:
    merchant, email = f"Shop {time.time_ns()}", f"abebe-{time.time_ns()}@example.et"
    gateway.new_merchant(merchant)
    other = f"Other {merchant}"
    gateway.new_merchant(other)
    settings = {"ZEMBIL_DATABASE_URL": gateway.database_url, "ZEMBIL_PUBLIC_URL": gateway.origin}

    def invite(to: str, *options: str) -> Any:
        return zembil("user", "invite", email, "--merchant", to, *options, settings=settings)

    first = invite(merchant).stdout.strip()
    over = (
        "UPDATE user_links SET expires_at = now() WHERE user_id = (SELECT id FROM users WHERE email = $1) RETURNING 1"
    )
    assert len(fetch(gateway, over, email)) == 1
    assert visitor.get(first).status_code == 404
    assert sentences(invite(other)) == ["This e-mail address belongs to somebody already."]
    (refused,) = sentences(invite(merchant, "--role", "developer"))
    assert refused.startswith(f"{email} was invited as admin: repeat with --role admin.")
    again = invite(merchant).stdout.strip()
    assert again.startswith(f"{gateway.origin}/dashboard/link/")
    assert visitor.sends(again, name="Abebe", new_password=PASSWORD).status_code == 303
    assert visitor.signs_in(User(None, None, email)).status_code == 303
    assert "is admin." in visitor.get(ACCOUNT).text


# At rest, over https, and when the database is away


def test_no_token_code_or_password_is_stored_readable(
    gateway: Gateway, visitor: Visitor, careful: Visitor, user: User
) -> None:
    link = new_link(gateway, user, LinkKind.SIGN_IN).rpartition("/")[2]
    (row,) = fetch(gateway, "SELECT users::text AS stored FROM users WHERE id = $1", user.id)
    stored = [row["stored"]]
    for table in ("sessions", "user_links", "recovery_codes"):
        rows = fetch(gateway, f"SELECT {table}::text AS stored FROM {table} WHERE user_id = $1", user.id)  # noqa: S608
        assert rows
        stored += [row["stored"] for row in rows]
    for secret in (careful.token, careful.secret, PASSWORD, link):
        assert all(secret not in text and secret.encode().hex() not in text for text in stored)
    assert "$argon2id$" in stored[0]


def test_the_secret_of_one_row_does_not_open_in_another(
    gateway: Gateway, merchant: Merchant, visitor_at: NewVisitor, careful: Visitor, user: User
) -> None:
    other = new_user(gateway, merchant)
    statement = (
        "UPDATE users SET sealed_totp = (SELECT sealed_totp FROM users WHERE id = $1), totp_since = now() WHERE id = $2"
    )
    fetch(gateway, statement, user.id, other.id)
    browser = visitor_at()
    browser.signs_in(other)
    assert browser.sends(CODE, code=careful.code()).status_code == 401
    assert not browser.is_signed_in()


@asynccontextmanager
async def served(database_url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """The dashboard in this process, as it is behind https."""
    settings = Settings(database_url=database_url, secret_key=bytes(range(32)), public_url="https://pay.example.et")
    async with connected(database_url, connections_max=2) as db:
        dashboard = Dashboard.make(Charger(db, Clock(), settings, Bell()), KeyRing(db, Clock(), settings))
        app = Starlette(routes=dashboard.routes(), exception_handlers={Exception: dashboard.refused})
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="https://pay.example.et") as client:
            yield client


async def test_over_https_cookies_are_bound_to_this_host(gateway: Gateway, merchant: Merchant) -> None:
    user = await asyncio.to_thread(new_user, gateway, merchant)
    async with served(gateway.database_url) as client:
        shown = await client.get(SIGN_IN)
        fields = {"form_token": form_token(shown), "email": user.email, "password": PASSWORD}
        let_in = await client.post(SIGN_IN, data=fields)
        for cookie in (shown.headers["set-cookie"], let_in.headers["set-cookie"]):
            assert cookie.startswith("__Host-zembil-")
            attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
            assert attributes >= {"secure", "httponly", "samesite=lax", "path=/"}
            assert not any(part.startswith("domain") for part in attributes)
        assert (await client.get(HOME)).status_code == 200


async def test_while_the_database_is_away_a_page_says_so() -> None:
    async with served("postgresql://nobody@127.0.0.1:1/none") as client:
        client.cookies.set("__Host-zembil-session", "x" * 43)
        away = await client.get(HOME)
        assert (away.status_code, heading(away)) == (503, "Not just now")
        assert "Nothing is lost" in away.text
        client.cookies.delete("__Host-zembil-session")
        shown = await client.get(SIGN_IN)
        fields = {"form_token": form_token(shown), "email": "almaz@example.et", "password": PASSWORD, "next": ACCOUNT}
        refused = await client.post(SIGN_IN, data=fields)
        assert (refused.status_code, refused.headers["retry-after"], len(errors(refused))) == (503, "1", 1)
        assert 'value="almaz@example.et"' in refused.text  # what was typed stays, and so does where it leads
        assert f'name="next" value="{ACCOUNT}"' in refused.text
        assert "Traceback" not in away.text


def test_a_page_of_nowhere_is_a_page(visitor: Visitor, user: User) -> None:
    for path in ("/dashboard/nothing", "/dashboard/sandboxes", "/dashboard/sandbox/%00", "/dashboard/Live"):
        nowhere = visitor.get(path)
        assert heading(nowhere) == "Nothing is here"
        assert "This address leads nowhere here." in nowhere.text
    assert visitor.client.post("/dashboard/link/x").status_code in (403, 404)
    assert visitor.client.delete(HOME).status_code == 405
