"""People who use the dashboard, without a browser: a client with cookies that sends forms as our pages make them."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import unescape
from typing import Any, TypeVar

import httpx2
from argon2 import PasswordHasher
from pyotp.totp import TOTP

from tests.support.gateway import Gateway, Merchant
from zembil.accounts import model, sign_in, team
from zembil.accounts.model import Actor, ActorKind, LinkKind, Role
from zembil.accounts.queries import find_principal
from zembil.accounts.secrets import hashed
from zembil.accounts.user_queries import find_user
from zembil.db.pool import Database, connected, connection, reading, transaction

PASSWORD = "five words in a row"
SECOND_STEP = "/dashboard/sandbox/your-account/second-step"
OPERATOR = Actor(ActorKind.OPERATOR, "tests")

_numbers = itertools.count(1)


@cache
def _password_hash() -> str:
    return PasswordHasher().hash(PASSWORD)


@dataclass(frozen=True)
class User:
    """Somebody who has an e-mail address and a password."""

    id: Any
    merchant_id: Any
    email: str


def new_user(gateway: Gateway, merchant: Merchant, *, role: Role = Role.ADMIN, name: str = "Almaz") -> User:
    """Somebody who was invited to a merchant, and came."""

    async def come(db: Database) -> User:
        first = await _first_admin(db, merchant)
        email = f"almaz-{os.getpid()}-{time.time_ns()}@example.et"
        user_id, token = await team.invite(
            db, first.merchant_id, email=email, role=role, by=OPERATOR, at=datetime.now(UTC)
        )
        await sign_in.accept_invitation(db, token, name=name, hashed=_password_hash(), at=datetime.now(UTC))
        return User(user_id, first.merchant_id, email)

    return in_database(gateway, come)


def new_invitation(gateway: Gateway, merchant: Merchant, *, role: Role = Role.ADMIN) -> tuple[str, str]:
    """Somebody who was invited and has not come yet: the e-mail, and the link."""

    async def invite(db: Database) -> tuple[str, str]:
        first = await _first_admin(db, merchant)
        email = f"abebe-{os.getpid()}-{time.time_ns()}@example.et"
        _, token = await team.invite(db, first.merchant_id, email=email, role=role, by=OPERATOR, at=datetime.now(UTC))
        return email, f"{gateway.origin}/dashboard/link/{token}"

    return in_database(gateway, invite)


def new_sign_in_link(gateway: Gateway, merchant: Merchant) -> str:
    """The link that `zembil dev` prints: it signs in as the merchant's first admin."""

    async def make(db: Database) -> str:
        first = await _first_admin(db, merchant)
        async with transaction(db) as conn:
            token = await sign_in.new_link(conn, first, LinkKind.SIGN_IN, lifetime=sign_in.SIGN_IN_LINK_LIFETIME)
        return f"{gateway.origin}/dashboard/link/{token}"

    return in_database(gateway, make)


def new_link(gateway: Gateway, user: User, kind: LinkKind) -> str:
    """The path of a link that works once."""

    async def make(db: Database) -> str:
        async with transaction(db) as conn:
            found = await find_user(conn, user.id)
            assert found is not None
            return await sign_in.new_link(conn, found, kind, lifetime=sign_in.SIGN_IN_LINK_LIFETIME)

    return f"/dashboard/link/{in_database(gateway, make)}"


async def _first_admin(db: Database, merchant: Merchant) -> model.User:
    """In whose name the first keys were made."""
    async with reading(db) as conn:
        principal = await find_principal(conn, hashed(merchant.sandbox["admin_key"]))
        assert principal is not None
        user = await find_user(conn, principal.user_id)
    assert user is not None
    return user


Result = TypeVar("Result")


def in_database(gateway: Gateway, work: Callable[[Database], Coroutine[Any, Any, Result]]) -> Result:
    """Do something beside the pages, as the command line does."""

    async def run() -> Result:
        async with connected(gateway.database_url, connections_max=1) as db:
            return await work(db)

    return asyncio.run(run())


def app_code(secret: str, steps_on: int = 0) -> str:
    """The code that an authenticator app shows now, or so many steps of 30 seconds on."""
    return TOTP(secret).at(int(time.time()) + 30 * steps_on)


def fetch(gateway: Gateway, statement: str, *values: object) -> list[Any]:
    """What the database says."""

    async def rows() -> list[Any]:
        async with connection(gateway.database_url) as conn:
            driver: Any = conn
            return await driver.fetch(statement, *values)

    return asyncio.run(rows())


class Visitor:
    """One browser profile, at an address of its own: what one test does wrong counts against no other."""

    def __init__(self, origin: str, address: str = "") -> None:
        number = next(_numbers)
        self.address = address or f"127.{1 + os.getpid() % 250}.{number // 250 % 250}.{1 + number % 250}"
        self.client = httpx2.Client(
            base_url=origin,
            transport=httpx2.HTTPTransport(local_address=self.address),
            timeout=30,
            headers={"User-Agent": "Mozilla/5.0 (Linux; Android 13) Firefox/140.0"},
        )
        self.secret = ""  # of the second step

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.get(path, **options)

    def opens(self, path: str) -> httpx2.Response:
        """Open a page, and whatever it leads on to."""
        return self.client.get(path, follow_redirects=True)

    def sends(self, page: str, action: str = "", /, **fields: str) -> httpx2.Response:
        """Fill in a form of a page and send it; answers without following."""
        shown = self.opens(page)
        return self.client.post(action or page, data={"form_token": form_token(shown), **fields})

    def signs_in(self, user: User, *, password: str = PASSWORD, **fields: str) -> httpx2.Response:
        return self.sends("/dashboard/sign-in", email=user.email, password=password, **fields)

    def begins_second_step(self) -> str:
        """The secret that the page offers to the app."""
        match = re.search(r'<code class="id">([A-Z2-7 ]+)</code>', self.opens(SECOND_STEP).text)
        assert match is not None
        return match[1].replace(" ", "")

    def sets_up_second_step(self, *, password: str = PASSWORD) -> httpx2.Response:
        self.secret = self.begins_second_step()
        return self.sends(SECOND_STEP, current_password=password, code=self.code(-1))

    def code(self, steps_on: int = 0) -> str:
        """The code that this person's app shows."""
        return app_code(self.secret, steps_on)

    @property
    def token(self) -> str:
        """Of the session, as the browser keeps it."""
        return self.client.cookies.get("zembil-session") or ""

    def is_signed_in(self) -> bool:
        return self.get("/dashboard/sandbox").status_code == 200

    def close(self) -> None:
        self.client.close()


def form_token(page: httpx2.Response) -> str:
    match = re.search(r'name="form_token" value="(\w+)"', page.text)
    assert match is not None, page.text
    return match[1]


def errors(page: httpx2.Response) -> list[str]:
    """What stands beside the fields."""
    return [unescape(text) for text in re.findall(r'<strong class="error"[^>]*>(.*?)</strong>', page.text)]


def heading(page: httpx2.Response) -> str:
    match = re.search(r"<h1>(.*?)</h1>", page.text, re.DOTALL)
    return "" if match is None else unescape(re.sub("<[^>]+>", "", match[1]))


def signed_in(gateway: Gateway, merchant: Merchant, *, role: Role = Role.ADMIN, name: str = "Almaz") -> Visitor:
    """Somebody of the merchant's team, in the sandbox; with `sets_up_second_step` in live too."""
    visitor = Visitor(gateway.origin)
    assert visitor.signs_in(new_user(gateway, merchant, role=role, name=name)).status_code == 303
    return visitor


def text_of(page: httpx2.Response) -> str:
    """What stands on a page, without its marks."""
    plain = re.sub(r"<[^>]+>", " ", page.text.partition('<main id="page">')[2])
    return re.sub(r"\s+", " ", unescape(plain)).strip()


def notice(page: httpx2.Response) -> str:
    """What the page says of what was just done."""
    match = re.search(r'<div class="notice[^"]*" role="\w+"><p>(.*?)</p>', page.text)
    return "" if match is None else unescape(match[1])
