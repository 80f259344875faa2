"""Passwords: what may be one, and how one is kept (argon2id)."""

import asyncio
import unicodedata
from collections.abc import Iterator

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from zembil.errors import RateLimitExceeded

LENGTH_MIN, LENGTH_MAX = 12, 128
_AT_ONCE = 2  # each takes 64 MiB and a core
_WAITING_MAX = 30
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
    """Hashes and checks, at most two at a time and off the event loop: each takes 64 MiB and a tenth of a second."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def hashed(self, password: str) -> str:
        return await self._in_turn(password, None) or ""

    async def is_right(self, password: str, password_hash: str | None) -> bool:
        """Whether it is the password; without a hash it takes as long, and it is not."""
        right = await self._in_turn(_normal(password)[: LENGTH_MAX + 1], password_hash or NOBODYS) is not None
        return right and password_hash is not None

    async def _in_turn(self, password: str, password_hash: str | None) -> str | None:
        if self._waiting >= _WAITING_MAX:
            raise RateLimitExceeded("Many people sign in just now; try again in a moment.", retry_after_seconds=5)
        self._waiting += 1
        try:
            async with self._turn:
                if password_hash is None:
                    return await asyncio.to_thread(_hasher.hash, _normal(password))
                return await asyncio.to_thread(_verified, password_hash, _normal(password))
        finally:
            self._waiting -= 1


def is_outdated(password_hash: str) -> bool:
    """Whether it was made with parameters of earlier days."""
    return _hasher.check_needs_rehash(password_hash)


def _verified(password_hash: str, password: str) -> str | None:
    try:
        _hasher.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return None
    return password_hash


def _normal(password: str) -> str:
    """The same letters are the same password, however a keyboard composes them."""
    return unicodedata.normalize("NFC", password)
