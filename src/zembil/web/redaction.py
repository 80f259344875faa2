"""Which parts of a request the log keeps: what it was, and little about the people in it."""

import re
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

from zembil.telemetry import masked

KEPT_CHARACTERS_MAX = 4096
_KEY_CHARACTERS_MAX = 255
REMOVED, API_KEY, CARD = MARKS = "[removed]", "[API key]", "****"  # what stands where something was taken out
NO_JSON = "bytes that are no JSON]"
_PERSONAL = frozenset({"email", "phone", "phone_number", "name", "first_name", "last_name"})
_OF_THEIR_OWN = "metadata"  # whatever the merchant writes there: the keys say enough
_SOMEONE = "customer"  # an object of such fields, or an id; in any other form it is a person
_WITH_A_QUERY = frozenset({"callback_url", "url"})  # where an address may carry a token
_API_KEY = re.compile(r"sk_(?:test|live)_\w+")
# An e-mail address or a phone, wherever it stands. What begins within a word is passed over, so that a long one costs
# no more than its length; a phone begins with a character for which the engine looks quickly, and only then looks back.
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(
    r"[+02](?:(?<=\+)[0-9]{8,14}"
    r"|(?<![0-9][02])(?:(?:(?<=\+)251|(?<=0)0251|(?<=2)51)[ -]?|(?<=0))[79](?:[ -]?[0-9]){8}(?![0-9]))"
)
_DIGITS = re.compile(r"[+0-9](?:[ -]?[0-9]){8}")  # no phone has fewer
_CUSTOMER_ID = re.compile(r"cus_[0-9a-z]{26}")
_EXAMPLES = frozenset({"abebe@example.com", "+251911223344"})  # nobody's: what our messages name

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def redacted_body(body: bytes) -> str | None:
    """The body of a request without what is personal; what is no JSON is not kept at all."""
    if not body:
        return None
    try:
        document = _redacted(_decoder.decode(body))
        text = _encoder.encode(document).decode()
        if "@" in text or _DIGITS.search(text):  # hardly ever, and the rest of the texts need no look
            text = _encoder.encode(_nameless(document)).decode()
        return _clean(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return f"[{len(body)} {NO_JSON}"


def redacted_query(query_string: bytes) -> str | None:
    """The query of a request; personal values and whatever looks like an API key are removed."""
    if not query_string:
        return None
    fields = parse_qsl(query_string.decode("utf-8", "replace"), keep_blank_values=True)
    kept = [(name, _redacted_field(name, value)) for name, value in fields]
    if any("@" in text or _DIGITS.search(text) for field in kept for text in field):
        kept = [(_without_people(name), masked(_without_people(value))) for name, value in kept]
    return _clean(urlencode(kept, safe="[]:*"))


def redacted_text(text: str) -> str:
    """What is no document: a path, a refusal. Nothing in it says which part is personal."""
    return _clean(_without_people(text))


def redacted_key(key: str) -> str:
    """An idempotency key as it is kept, and looked for."""
    return redacted_text(key)[:_KEY_CHARACTERS_MAX]


def is_whole(text: str) -> bool:
    """Whether nothing was taken out of a text: keys of which something was may look alike."""
    return not any(mark in text for mark in MARKS)


def _clean(text: str) -> str:
    """A text that PostgreSQL takes, without API keys and the digits of cards, and not too long."""
    return masked(_API_KEY.sub(API_KEY, text.replace("\x00", "")))[:KEPT_CHARACTERS_MAX]


def _without_people(text: str) -> str:
    """A text without the e-mail addresses and phones in it."""
    if "@" in text:
        text = _EMAIL.sub(_unless_nobodys, text)
    return _PHONE.sub(_unless_nobodys, text)


def _unless_nobodys(found: re.Match[str]) -> str:
    return found[0] if found[0] in _EXAMPLES else REMOVED


def _redacted(value: Any, name: str = "") -> Any:
    """A document without what its names say is personal."""
    if value is None:
        return None
    if name in _PERSONAL:
        return REMOVED
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if name == _OF_THEIR_OWN:
            return dict.fromkeys(fields, REMOVED)
        return {key: _redacted(part, key) for key, part in fields.items()}
    if name == _OF_THEIR_OWN:
        return REMOVED
    if isinstance(value, list):
        return [_redacted(part, name) for part in cast("list[Any]", value)]
    return _redacted_leaf(value, name)


def _redacted_leaf(value: Any, name: str) -> Any:
    if name == _SOMEONE and not (isinstance(value, str) and _CUSTOMER_ID.fullmatch(value)):
        return REMOVED
    if name in _WITH_A_QUERY and isinstance(value, str):
        address, mark, _ = value.partition("?")
        return address + (mark and mark + REMOVED)
    return value


def _redacted_field(name: str, value: str) -> str:
    """The value of a query's field, whose name may be like `customer[name]`."""
    names = name.replace("]", "").split("[")
    if _OF_THEIR_OWN in names or not _PERSONAL.isdisjoint(names):
        return REMOVED
    return _redacted_leaf(value, names[-1])


def _nameless(value: Any) -> Any:
    """A document without the e-mail addresses and phones in its texts."""
    if isinstance(value, str):
        return _without_people(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {_without_people(key): _nameless(part) for key, part in fields.items()}
    if isinstance(value, list):
        return [_nameless(part) for part in cast("list[Any]", value)]
    return value
