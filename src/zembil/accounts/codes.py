"""The second step: codes of an authenticator app (TOTP, RFC 6238), and recovery codes for when the phone is lost."""

import hashlib
import hmac
import re
import secrets
import uuid
from datetime import datetime

from pyotp import random_base32
from pyotp.totp import TOTP

STEP_SECONDS = 30
RECOVERY_CODES = 10
_STEPS_AROUND = (0, -1, 1)  # clocks of phones are a little off
_CODE = re.compile(r"[0-9]{6}")
_ALPHABET = "abcdefghjkmnpqrstvwxyz23456789"  # nothing that is easily misread
_RECOVERY_CODE = re.compile(rf"[{_ALPHABET}]{{12}}")


def new_secret() -> str:
    return random_base32()


def app_link(secret: str, *, user: str, service: str) -> str:
    """What the QR code says to an authenticator app."""
    return TOTP(secret).provisioning_uri(name=user, issuer_name=service)


def step_of(secret: str, code: str, *, at: datetime) -> int | None:
    """The 30-second step of which it is the code, or None. A step is used once: who accepts it keeps its number."""
    text = code.replace(" ", "")
    if not _CODE.fullmatch(text):
        return None
    generator, now = TOTP(secret), int(at.timestamp()) // STEP_SECONDS
    for step in (now + around for around in _STEPS_AROUND):
        if hmac.compare_digest(generator.generate_otp(step), text):
            return step
    return None


def new_recovery_codes() -> list[str]:
    return ["-".join(_random_text(4) for _ in range(3)) for _ in range(RECOVERY_CODES)]


def recovery_code_hash(user_id: uuid.UUID, code: str) -> bytes | None:
    """What is stored of a recovery code (58 random bits, bound to its user), or None if it has not the form of one."""
    text = code.lower().replace("-", "").replace(" ", "")
    if not _RECOVERY_CODE.fullmatch(text):
        return None
    return hashlib.sha256(user_id.bytes + text.encode()).digest()


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
