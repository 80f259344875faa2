"""Which parts of a request the log keeps: what it was, and nothing about the people in it."""

import re
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

KEPT_CHARACTERS_MAX = 4096
_REMOVED = "[removed]"
_PERSONAL = frozenset({"email", "phone", "name"})
_OF_THEIR_OWN = frozenset({"metadata"})  # whatever the merchant writes there: the keys say enough
_WITH_A_QUERY = frozenset({"callback_url", "url"})  # where an address may carry a token
_API_KEY = re.compile(r"sk_(?:test|live)_\w+")

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
        return f"[{len(body)} bytes that are no JSON]"


def redacted_query(query_string: bytes) -> str | None:
    """The query of a request; personal values and whatever looks like an API key are removed."""
    if not query_string:
        return None
    fields = parse_qsl(query_string.decode("utf-8", "replace"), keep_blank_values=True)
    kept = [
        (name, _REMOVED if name.partition("[")[0] in _PERSONAL | _OF_THEIR_OWN else value) for name, value in fields
    ]
    return _clean(urlencode(kept, safe="[]:"))


def redacted_path(path: str) -> str:
    return _clean(path)


def _clean(text: str) -> str:
    """A text that PostgreSQL takes, without API keys, and not too long."""
    return _API_KEY.sub("[API key]", text.replace("\x00", ""))[:KEPT_CHARACTERS_MAX]


def _redacted(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _REMOVED if name in _OF_THEIR_OWN else _redacted(part, key) for key, part in fields.items()}
    if isinstance(value, list):
        return [_redacted(part, name) for part in cast("list[Any]", value)]
    if name in _PERSONAL and value is not None:
        return _REMOVED
    if name in _WITH_A_QUERY and isinstance(value, str):
        return value.partition("?")[0]
    return value
