"""API keys, and secrets at rest."""

import base64
import hashlib
import re
import secrets
import string
import zlib
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_LENGTH, _CHECKSUM_LENGTH = 43, 6
_FORM = re.compile(r"sk_(?:test|live)_[0-9A-Za-z]{49}")
_NONCE_BYTES = 12


def new_api_key(*, livemode: bool) -> str:
    """A key with 256 random bits and a checksum, so that typing errors are refused without a look-up."""
    body = ("sk_live_" if livemode else "sk_test_") + _random_text(_RANDOM_LENGTH)
    return body + _checksum(body)


def is_api_key(text: str) -> bool:
    """Whether the text has the form and the checksum of an API key."""
    return _FORM.fullmatch(text) is not None and _checksum(text[:-_CHECKSUM_LENGTH]) == text[-_CHECKSUM_LENGTH:]


def opens_live(key: str) -> bool:
    return key.startswith("sk_live_")


def hashed(key: str) -> bytes:
    """What is stored of a key. Its 256 random bits need no slow hash."""
    return hashlib.sha256(key.encode()).digest()


def new_signing_secret(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    return "whsec_" + base64.b64encode(random_bytes(32)).decode("ascii")


def seal(key: bytes, plain: str, *, bound_to: str) -> bytes:
    """Encrypt with AES-256-GCM, bound to its row: the ciphertext does not open anywhere else."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain.encode(), bound_to.encode())


def unseal(key: bytes, sealed: bytes, *, bound_to: str) -> str:
    """Raises cryptography's InvalidTag if the key or the row is another."""
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to.encode()).decode()


def opened(key: bytes, sealed: bytes, *, bound_to: str) -> str | None:
    """Like `unseal`, of what others could have changed: None if it was."""
    try:
        return unseal(key, sealed, bound_to=bound_to)
    except (InvalidTag, ValueError):
        return None


def random_token() -> str:
    """A token of 256 random bits, for links and cookies."""
    return secrets.token_urlsafe(32)


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_BASE62) for _ in range(length))


def _checksum(body: str) -> str:
    number, characters = zlib.crc32(body.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        characters = _BASE62[digit] + characters
    return characters
