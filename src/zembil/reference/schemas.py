"""JSON Schemas of the Structs that validate requests and make answers."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from zembil.config import Settings
from zembil.payments.charge_api import ChargedPayment
from zembil.payments.model import FailureCode, ShownPayment
from zembil.reference.narrowing import narrow_body
from zembil.refunds.api import CreateRefund

Schema = dict[str, Any]

REF = "#/components/schemas/"

_DECIMAL: Schema = {"type": "string", "format": "decimal"}  # as msgspec writes it; on the wire it is a number
_INSTANT: Schema = {"type": "string", "format": "date-time"}
_METADATA: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_OF_OUR_DESIGN = re.compile(r" \((contract|decisions)[^)]*\)")

# What the types of the answers leave open.
_CLOSED: dict[str, Schema] = {
    "currency": {"type": "string", "enum": ["ETB"]},
    "payment_method": {"type": "string", "enum": ["mobile_money"]},
    "cancellation_reason": {"type": "string", "enum": ["customer", "merchant", "expired"]},
    "payment_link": {"type": "string", "format": "uri", "description": "The page on which the customer pays."},
    "qr_code": {"type": "string", "description": "The payment link as a PNG image in a data URI."},
    "metadata": _METADATA,
}
_FAILURES: Schema = {"type": "string", "enum": [code.value for code in FailureCode]}
# Names under which they are known outside.
_NAMES = {
    "ShownPayment": "Payment",
    "ShownRefund": "Refund",
    "ShownCharge": "Charge",
    "ShownCustomer": "Payer",
    "EventObject": "EventData",
}


def name_of(kind: type[Struct]) -> str:
    return _NAMES.get(kind.__name__, kind.__name__)


def ref_to(kind: type[Struct]) -> Schema:
    return {"$ref": REF + name_of(kind)}


def components(
    bodies: Iterable[type[Struct]], answers: Iterable[type[Struct]], settings: Settings
) -> dict[str, Schema]:
    """The schemas of these and of all that they hold, by the names under which `ref_to` finds them."""
    asked = _schemas(bodies)
    for schema in asked.values():
        narrow_body(schema, settings)
    refund = asked.get(CreateRefund.__name__)
    if refund:  # a null is no amount there, lest everything is refunded by mistake
        refund["properties"]["amount"] = next(one for one in refund["properties"]["amount"]["anyOf"] if "type" in one)
    shown = {name: _answer(schema) for name, schema in _schemas(answers).items()}
    for kind in (ShownPayment, ChargedPayment):
        if name_of(kind) in shown:
            shown[name_of(kind)]["properties"]["failure_code"] = _FAILURES
    return dict(sorted({**asked, **shown}.items()))


def _schemas(kinds: Iterable[type[Struct]]) -> dict[str, Schema]:
    _, found = msgspec.json.schema_components(tuple(kinds), ref_template=REF + "{name}")
    return {_NAMES.get(name, name): _tidied(schema) for name, schema in found.items()}


def _tidied(node: Any) -> Any:
    """Without titles and defaults of null, and with amounts as the numbers that they are."""
    if isinstance(node, list):
        return [_tidied(part) for part in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    schema: Schema = {
        str(key): _tidied(part)  # pyright: ignore[reportUnknownArgumentType]
        for key, part in node.items()  # pyright: ignore[reportUnknownVariableType]
        if not (key == "title" and isinstance(part, str)) and not (key == "default" and part is None)
    }
    if _DECIMAL.items() <= schema.items():
        del schema["format"]
        schema["type"] = "number"
    if isinstance(schema.get("$ref"), str):
        name: str = schema["$ref"].removeprefix(REF)
        schema["$ref"] = REF + _NAMES.get(name, name)
    if isinstance(schema.get("description"), str):
        schema["description"] = _OF_OUR_DESIGN.sub("", schema["description"])
    if schema.get("required") == []:
        del schema["required"]
    return _described_outside(schema)


def _described_outside(schema: Schema) -> Schema:
    """A description of one of several kinds stands where readers look: beside them."""
    kinds = schema.get("anyOf")
    if not isinstance(kinds, list) or "description" in schema:
        return schema
    sentences = [kind.pop("description") for kind in kinds if isinstance(kind, dict) and "description" in kind]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return schema | ({"description": sentences[0]} if sentences else {})


def _answer(schema: Schema) -> Schema:
    """An answer's fields that a name says more of than their type: times, addresses, what is closed."""
    properties: dict[str, Schema] = schema.get("properties", {})
    for name, part in properties.items():
        if name in _CLOSED:
            properties[name] = dict(_CLOSED[name])
        elif name.endswith("_at") or name == "failing_since":
            _narrow(part, _INSTANT)
    return schema


def _narrow(part: Schema, to: Schema) -> None:
    for kind in part.get("anyOf", [part]):
        if kind.get("type") == "string":
            kind.update(to)
