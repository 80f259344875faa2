"""Identifiers: a UUID inside, a prefix and 26 characters outside; and the token of a payment link.

An id is 48 bits of milliseconds and 80 random bits, so ids sort by creation and a range of ids is a range of time.
"""

import base64
import binascii
import os
import re
import uuid
from datetime import UTC, datetime
from enum import StrEnum

from zembil import instants

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts like the number, no i l o u
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_SHOWN = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")  # the first character carries three bits

_TOKEN = re.compile(r"[A-Za-z0-9_-]{52}")
TOKEN_LENGTH = 52

_REQUEST_ID = re.compile(r"req_([0-9a-f]{26})")
_REQUEST_ID_SHIFT = 24  # a request's id is 104 bits; as a UUID it has zeros behind them


class Prefix(StrEnum):
    PAYMENT = "pay_"
    REFUND = "ref_"
    CUSTOMER = "cus_"
    EVENT = "evt_"
    TRANSACTION = "txn_"
    ENDPOINT = "whk_"
    DELIVERY = "dlv_"
    KEY = "key_"
    CHARGE = "chg_"
    MERCHANT = "mer_"
    ACCOUNT = "acc_"
    USER = "usr_"
    ENTRY = "ent_"
    SESSION = "ses_"
    AUDIT_ENTRY = "aud_"


def new_id(at: datetime) -> uuid.UUID:
    """A new identifier of the instant `at`."""
    return id_at(at, os.urandom(10))


def id_at(at: datetime, tail: bytes = bytes(10)) -> uuid.UUID:
    """The identifier of the millisecond of `at` with these ten last bytes; by default the first of that millisecond."""
    return uuid.UUID(bytes=instants.milliseconds(at).to_bytes(6, "big") + tail)


def created_at(identifier: uuid.UUID) -> datetime:
    """The instant in an identifier, which is the created_at of what it names."""
    return datetime.fromtimestamp((identifier.int >> 80) / 1000, tz=UTC)


def shown(prefix: Prefix, identifier: uuid.UUID) -> str:
    """The identifier as merchants see it: the prefix and 26 characters."""
    number = identifier.int
    return prefix + "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])


def parsed(prefix: Prefix, text: str) -> uuid.UUID | None:
    """The identifier that `text` shows, or None if it is not of that kind or not exactly as we write it."""
    if not text.startswith(prefix) or not _SHOWN.fullmatch(text, len(prefix)):
        return None
    number = 0
    for character in text[len(prefix) :]:
        number = number << 5 | _VALUES[character]
    return uuid.UUID(int=number)


def shown_request_id(identifier: uuid.UUID) -> str:
    """The request id as answers carry it."""
    return f"req_{identifier.int >> _REQUEST_ID_SHIFT:026x}"


def parsed_request_id(text: str) -> uuid.UUID | None:
    """The request id that `text` shows, or None; like every id it begins with its milliseconds."""
    found = _REQUEST_ID.fullmatch(text)
    return uuid.UUID(int=int(found[1], 16) << _REQUEST_ID_SHIFT) if found else None


def link_token(account_id: int, payment_id: uuid.UUID, secret: bytes) -> str:
    """The token of a payment link: seven bytes to find the account, the payment's id, and 128 secret bits."""
    return base64.urlsafe_b64encode(account_id.to_bytes(7, "big") + payment_id.bytes + secret).decode("ascii")


def parsed_link_token(token: str) -> tuple[int, uuid.UUID, bytes] | None:
    """The account, payment and secret of a token, or None if it has not the form of one."""
    if not _TOKEN.fullmatch(token):
        return None
    try:
        raw = base64.urlsafe_b64decode(token)
    except binascii.Error:
        return None
    return int.from_bytes(raw[:7], "big"), uuid.UUID(bytes=raw[7:23]), raw[23:]


_SHIFTS = range(120, -1, -10)
