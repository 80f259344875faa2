"""Passwords: what may be one, and how one is kept (argon2id)."""

import asyncio
import unicodedata
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from zembil.errors import ServiceUnavailable

LENGTH_MIN, LENGTH_MAX = 12, 128
_AT_ONCE = 2  # each takes 64 MiB and a core
_WAITING_MAX, _WAITING_SECONDS_MAX = 30, 15
_DISTINCT_MIN = 5

# The commonest of those that are long enough.
_COMMON = frozenset(
    [
        "123456789012",
        "1234567890123",
        "12345678901234",
        "123456789012345",
        "1234567890123456",
        "012345678910",
        "098765432109",
        "987654321098",
        "qwertyuiop12",
        "qwertyuiop123",
        "qwertyuiopas",
        "qwertyuiopasdf",
        "qwertyuiopasdfgh",
        "1qaz2wsx3edc",
        "1q2w3e4r5t6y",
        "zaq12wsxcde3",
        "password1234",
        "password12345",
        "password123456",
        "passwordpassword",
        "password1234!",
        "mypassword123",
        "adminpassword",
        "administrator",
        "administrator1",
        "adminadminadmin",
        "welcome12345",
        "welcome123456",
        "letmeinletmein",
        "iloveyou1234",
        "iloveyouforever",
        "abcdefghijkl",
        "abc123abc123",
        "changemeplease",
        "changeme1234",
        "asdfghjkl123",
        "football1234",
        "princess1234",
        "unitedstates",
    ]
)

# No password's: it is checked where there is none, so that an unknown e-mail takes as long as a known one.
NOBODYS = "$argon2id$v=19$m=65536,t=3,p=4$O5RuPA80fieBMyjr15/HLA$sSqH4ZK/EogkJ9i44uc3wwu8rMh7R5iGYg0Trl74gKA"

_hasher = PasswordHasher()


def faults(password: str, *, email: str = "") -> Iterator[str]:
    """What is wrong with a password that somebody chose: one sentence at most."""
    text = _normal(password)
    name = email.partition("@")[0]
    if len(text) < LENGTH_MIN:
        yield f"Take at least {LENGTH_MIN} characters; a few words in a row are easy to remember."
    elif len(text) > LENGTH_MAX:
        yield f"Take at most {LENGTH_MAX} characters."
    elif text.lower() in _COMMON or len(set(text)) < _DISTINCT_MIN:
        yield "This one is among the first that anybody tries; take another."
    elif len(name) > 3 and text.lower().replace(name, "").strip("0123456789!.@-_ ") == "":
        yield "Take something else than your name."


class Passwords:
    """Lets few check passwords at once, so that a flood of sign-ins takes neither the machine nor the database.

    Each check takes 64 MiB and a tenth of a second. Whoever finds the queue full is sent away, and nobody waits long.
    """

    def __init__(self, *, waiting_seconds_max: float = _WAITING_SECONDS_MAX) -> None:
        self._turns, self._waiting_seconds_max = asyncio.Semaphore(_AT_ONCE), waiting_seconds_max
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator["Turn"]:
        """One's turn to hash and check, with whatever is asked of the database for it. Raises ServiceUnavailable."""
        if self._waiting >= _WAITING_MAX:
            raise _busy()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._waiting_seconds_max):
                await self._turns.acquire()
        except TimeoutError:
            raise _busy() from None
        finally:
            self._waiting -= 1
        try:
            yield Turn()
        finally:
            self._turns.release()


class Turn:
    """What is done with passwords in one's turn, off the event loop."""

    async def hashed(self, password: str) -> str:
        return await asyncio.to_thread(_hasher.hash, _normal(password))

    async def is_right(self, password: str, password_hash: str | None) -> bool:
        """Whether it is the password; without a hash it takes as long, and it is not."""
        given = _normal(password)[: LENGTH_MAX + 1]
        right = await asyncio.to_thread(_is_verified, password_hash or NOBODYS, given)
        return right and password_hash is not None


def _busy() -> ServiceUnavailable:
    return ServiceUnavailable("Many people sign in just now. Nothing was checked; try again in a moment.")


def is_outdated(password_hash: str) -> bool:
    """Whether it was made with parameters of earlier days."""
    return _hasher.check_needs_rehash(password_hash)


def _is_verified(password_hash: str, password: str) -> bool:
    try:
        return _hasher.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def _normal(password: str) -> str:
    """The same letters are the same password, however a keyboard composes them."""
    return unicodedata.normalize("NFC", password)
