"""Validates values against the schemas of /openapi.json: the keywords that it uses, and no others.

Stricter than JSON Schema in one thing: a field that nobody described is a fault, so that the reference cannot fall
behind the answers.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

Schema = dict[str, Any]

_ANNOTATIONS = {"description", "default", "format"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults(document: Schema, schema: Schema, value: Any, where: str = "$") -> Iterator[str]:
    """What is wrong with the value, in words."""
    described = _merged(document, schema)
    alternatives = described.pop("anyOf", None)
    if alternatives is not None:
        found = [list(faults(document, one, value, where)) for one in alternatives]
        if all(found):
            yield from min(found, key=len)
    kinds = described.pop("type", None)
    if kinds is not None and not _is_of(value, kinds):
        yield f"{where}: {value!r} is no {kinds}"
        return
    for keyword, expected in described.items():
        if keyword not in _ANNOTATIONS:
            yield from _KEYWORDS[keyword](document, described, expected, value, where)
    if described.get("format") == "date-time":
        datetime.fromisoformat(value)


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _merged(document: Schema, schema: Schema) -> Schema:
    """The schema with what it refers to, and with all that its allOf adds."""
    found = dict(schema)
    parts = [resolved(document, found.pop("$ref"))] if "$ref" in found else []
    parts += found.pop("allOf", [])
    for part in parts:
        found = _both(_merged(document, part), found)
    return found


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: _both(one[key], part) if key in one else part for key, part in other.items()}}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return other


def resolved(document: Schema, reference: str) -> Schema:
    """What a `#/…` reference names. Raises KeyError."""
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def _properties(document: Schema, described: Schema, expected: Any, value: Any, where: str) -> Iterator[str]:
    for name, part in value.items():
        if name in expected:
            yield from faults(document, expected[name], part, f"{where}.{name}")
        elif "additionalProperties" not in described:
            yield f"{where}.{name}: not described"


def _additional(document: Schema, described: Schema, expected: Any, value: Any, where: str) -> Iterator[str]:
    if isinstance(expected, dict):
        for name, part in value.items():
            if name not in described.get("properties", {}):
                yield from faults(document, expected, part, f"{where}.{name}")  # pyright: ignore[reportUnknownArgumentType]


def _required(_: Schema, __: Schema, expected: Any, value: Any, where: str) -> Iterator[str]:
    yield from (f"{where}.{name}: missing" for name in expected if name not in value)


def _items(document: Schema, _: Schema, expected: Any, value: Any, where: str) -> Iterator[str]:
    for number, part in enumerate(value):
        yield from faults(document, expected, part, f"{where}[{number}]")


def _said(text: str, holds: Callable[[Any, Any], bool]) -> Any:
    def check(_: Schema, __: Schema, expected: Any, value: Any, where: str) -> Iterator[str]:
        if not holds(expected, value):
            yield f"{where}: {value!r} is not {text} {expected!r}"

    return check


_KEYWORDS: dict[str, Any] = {
    "properties": _properties,
    "additionalProperties": _additional,
    "required": _required,
    "items": _items,
    "const": _said("the constant", lambda expected, value: value == expected),
    "enum": _said("one of", lambda expected, value: value in expected),
    "pattern": _said("like", lambda expected, value: re.search(expected, value) is not None),
    "minimum": _said("at least", lambda expected, value: value >= expected),
    "maximum": _said("at most", lambda expected, value: value <= expected),
    "exclusiveMinimum": _said("more than", lambda expected, value: value > expected),
    "minLength": _said("as long as", lambda expected, value: len(value) >= expected),
    "maxLength": _said("as short as", lambda expected, value: len(value) <= expected),
    "maxItems": _said("as short as", lambda expected, value: len(value) <= expected),
    "minItems": _said("as long as", lambda expected, value: len(value) >= expected),
}
