"""Which parts of a request the log keeps: what it was, and nothing about the people in it."""

import re
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

from zembil.telemetry import masked

KEPT_CHARACTERS_MAX = 4096
REMOVED, API_KEY, CARD = "[removed]", "[API key]", "****"  # what stands where something was taken out
NO_JSON = "bytes that are no JSON]"
_PERSONAL = frozenset({"email", "phone", "name"})
_OF_THEIR_OWN = frozenset({"metadata"})  # whatever the merchant writes there: the keys say enough
_WITH_A_QUERY = frozenset({"callback_url", "url"})  # where an address may carry a token
_API_KEY = re.compile(r"sk_(?:test|live)_\w+")
# An e-mail address or a phone, wherever it stands. What begins within a word is passed over, so that a long one costs
# no more than its length.
_SOMEBODY = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\+[0-9]{8,14}|(?<!\w)0[79][0-9]{8}(?!\w)",
)
_EXAMPLES = frozenset({"abebe@example.com", "+251911223344"})  # nobody's: what our messages name

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def redacted_body(body: bytes) -> str | None:
    """The body of a request without what is personal; what is no JSON is not kept at all."""
    if not body:
        return None
    try:
        document = _decoder.decode(body)
        return _clean(_encoder.encode(_redacted(document)).decode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return f"[{len(body)} {NO_JSON}"


def redacted_query(query_string: bytes) -> str | None:
    """The query of a request; personal values and whatever looks like an API key are removed."""
    if not query_string:
        return None
    fields = parse_qsl(query_string.decode("utf-8", "replace"), keep_blank_values=True)
    kept = [(name, REMOVED if name.partition("[")[0] in _PERSONAL | _OF_THEIR_OWN else value) for name, value in fields]
    return _clean(urlencode(kept, safe="[]:"))


def redacted_text(text: str) -> str:
    """What is no document: a path, an idempotency key, a refusal. Nothing in it says which part is personal."""
    return _clean(_SOMEBODY.sub(lambda found: found[0] if found[0] in _EXAMPLES else REMOVED, text))


def _clean(text: str) -> str:
    """A text that PostgreSQL takes, without API keys and the digits of cards, and not too long."""
    return masked(_API_KEY.sub(API_KEY, text.replace("\x00", "")))[:KEPT_CHARACTERS_MAX]


def _redacted(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: REMOVED if name in _OF_THEIR_OWN else _redacted(part, key) for key, part in fields.items()}
    if isinstance(value, list):
        return [_redacted(part, name) for part in cast("list[Any]", value)]
    if name in _PERSONAL and value is not None:
        return REMOVED
    if name in _WITH_A_QUERY and isinstance(value, str):
        address, mark, _ = value.partition("?")
        return address + (mark and mark + REMOVED)
    return value
