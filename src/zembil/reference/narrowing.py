"""What the checks of a request's fields hold, as far as JSON Schema can say it: forms, bounds, closed lists.

The fuzzer of the tests holds both sides against the API: what fits these schemas is accepted, what does not is refused.
"""

from typing import Any

from zembil.config import Settings
from zembil.ids import Prefix
from zembil.web.fields import METADATA_KEY_LENGTH_MAX, METADATA_KEYS_MAX, METADATA_VALUE_LENGTH_MAX
from zembil.webhooks.model import EventType

Schema = dict[str, Any]

_CENT = 0.01
_WEB_ADDRESS = r"^[Hh][Tt][Tt][Pp][Ss]?://[!-\[\]-~]+$"

INSTANT: Schema = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}],
    "examples": ["2026-11-21T09:54:00Z", "2026-11-21"],
}
PHONE: Schema = {"type": "string", "format": "phone", "pattern": r"^\+[1-9][0-9]{6,14}$"}


def identifier(*prefixes: Prefix) -> Schema:
    """An id of ours: the prefix and 26 characters."""
    kinds = prefixes[0].value if len(prefixes) == 1 else f"({'|'.join(prefix.value for prefix in prefixes)})"
    return {"type": "string", "pattern": f"^{kinds}[0-7][0-9a-hjkmnp-tv-z]{{25}}$"}


_TEXTS: dict[str, Schema] = {
    "email": {"format": "email", "minLength": 3},
    "phone": PHONE,
    "callback_url": {"format": "uri", "pattern": _WEB_ADDRESS},
    "url": {"format": "uri", "pattern": _WEB_ADDRESS},
    "payment_id": identifier(Prefix.PAYMENT),
    "id": identifier(Prefix.CUSTOMER),
}
_METADATA: Schema = {
    "maxProperties": METADATA_KEYS_MAX,
    "propertyNames": {"minLength": 1, "maxLength": METADATA_KEY_LENGTH_MAX},
}


def narrow_body(schema: Schema, settings: Settings) -> None:
    """Say of the fields of a request's body what their types leave open."""
    for name, part in schema.get("properties", {}).items():
        for kind in part.get("anyOf", [part]):
            _narrow(name, kind, settings)
        if name in ("since", "expires_at"):
            _make_an_instant(part)


def _narrow(name: str, kind: Schema, settings: Settings) -> None:
    match kind.get("type"):
        case "string":
            kind.update(_TEXTS.get(name, {}))
        case "number":
            kind.update(minimum=_CENT, maximum=settings.payment_santim_max / 100, multipleOf=_CENT)
        case "object" if name == "metadata":
            kind.update(_METADATA)
            values = kind["additionalProperties"]
            for value in values.get("anyOf", [values]):
                if value.get("type") == "string":
                    value["maxLength"] = METADATA_VALUE_LENGTH_MAX
        case "array" if name == "events":
            kind["items"]["enum"] = [*(event_type.value for event_type in EventType), "*"]
        case _:
            pass


def _make_an_instant(part: Schema) -> None:
    kinds = [kind for kind in part.pop("anyOf", []) if kind.get("type") == "null"]
    for word in ("type", "maxLength"):
        part.pop(word, None)
    part.update(INSTANT, anyOf=[*INSTANT["anyOf"], *kinds])
