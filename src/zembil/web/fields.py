"""Kinds of field that several bodies share: text, e-mail, phone, address, metadata."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated
from urllib.parse import urlsplit

import phonenumbers
from email_validator import EmailNotValidError, validate_email

from zembil.errors import Fault
from zembil.web.validation import must

METADATA_KEYS_MAX, METADATA_KEY_LENGTH_MAX, METADATA_VALUE_LENGTH_MAX = 50, 40, 500

# What nearly every address and every Ethiopian number looks like; the libraries judge the rest, at 30 times the cost.
_PLAIN_EMAIL = re.compile(
    r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\.){1,4}[a-z]{2,10}"
)
_ETHIOPIAN_MOBILE = re.compile(r"\+251[79][0-9]{8}")
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_PHONE_NOISE = re.compile(r"[\s().-]+")
_LOCAL = re.compile(r"0[79][0-9]{8}")
_URL = re.compile(r"https?://[!-\[\]-~]+", re.IGNORECASE)  # visible ASCII but the backslash, which browsers read as /


def check_email(text: str) -> Iterator[Fault]:
    if _PLAIN_EMAIL.fullmatch(text) and text.index("@") <= 64:
        return
    try:
        validate_email(text, check_deliverability=False, test_environment=True, strict=True)
    except EmailNotValidError:
        yield Fault("", "This is not an e-mail address, for example abebe@example.com.")


def international(phone: str) -> str:
    """A number as people type it (0911 234 567, +251 911…) in the form that check_phone takes; others unchanged."""
    digits = _PHONE_NOISE.sub("", phone)
    if _LOCAL.fullmatch(digits):
        return f"+251{digits[1:]}"
    if re.fullmatch(r"(?:00)?251[79][0-9]{8}", digits):
        return f"+{digits.removeprefix('00')}"
    return digits


def check_phone(text: str) -> Iterator[Fault]:
    if _ETHIOPIAN_MOBILE.fullmatch(text):
        return
    if _LOCAL.fullmatch(text):
        yield Fault("", f"Give the number in international form: +251{text[1:]}.")
    elif not _E164.fullmatch(text) or not _is_valid_number(text):
        yield Fault("", "This is not a phone number in international form, for example +251911223344.")


def _is_valid_number(text: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text))
    except phonenumbers.NumberParseException:
        return False


def check_url(text: str) -> Iterator[Fault]:
    if not _URL.fullmatch(text) or not _has_a_host(text):
        yield Fault("", "This is not a complete http or https address, for example https://shop.example.et/thanks.")


def _has_a_host(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def check_metadata(metadata: Mapping[str, str | None]) -> Iterator[Fault]:
    if len(metadata) > METADATA_KEYS_MAX:
        yield Fault("", f"There may be at most {METADATA_KEYS_MAX} keys.")
    for key, value in metadata.items():
        if not 1 <= len(key) <= METADATA_KEY_LENGTH_MAX:
            yield Fault("", f"A key has 1 to {METADATA_KEY_LENGTH_MAX} characters.")
        elif value is not None and len(value) > METADATA_VALUE_LENGTH_MAX:
            yield Fault(f".{key}", f"A value has at most {METADATA_VALUE_LENGTH_MAX} characters.")


Email = Annotated[str, must("Give an e-mail address of at most 254 characters.", check=check_email, max_length=254)]
Phone = Annotated[
    str, must("Give a phone number in international form, for example +251911223344.", check=check_phone, max_length=16)
]
Url = Annotated[
    str, must("Give an http or https address of at most 2048 characters.", check=check_url, max_length=2048)
]
Name = Annotated[str, must("Give a text of at most 200 characters.", max_length=200)]
Description = Annotated[str, must("Give a text of at most 500 characters.", max_length=500)]
Metadata = Annotated[
    dict[str, str],
    must(
        f"Give an object of strings: at most {METADATA_KEYS_MAX} keys of 1 to {METADATA_KEY_LENGTH_MAX} characters, "
        f"values of at most {METADATA_VALUE_LENGTH_MAX}.",
        check=check_metadata,
    ),
]
MetadataChange = Annotated[
    dict[str, str | None],
    must(
        f"Give an object of strings, null for a key to remove: keys of 1 to {METADATA_KEY_LENGTH_MAX} characters, "
        f"values of at most {METADATA_VALUE_LENGTH_MAX}.",
        check=check_metadata,
    ),
]
