"""Request bodies: exact, typed, and every fault at once.

One description of a body, a msgspec Struct, serves two ways. The quick way decodes straight into it. A body that it
refuses, or that holds an escape (and so could hide a repeated key, a NUL or half a surrogate), goes the careful way:
the document is walked and converted field by field with the same types, and every fault is collected.

`null` counts as absent for an optional field. In the body of a change it means something, "no more": there a field is
written `name: Kind | UnsetType | None = UNSET`, is None where it was null and UNSET where it was absent.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from zembil.errors import Fault, ValidationError

T = TypeVar("T", bound=Struct)

Check = Callable[[Any], Iterator[Fault]]
"""Finds what a type cannot say. The faults' fields are relative: "" is the value itself, ".k" what lies below it."""

Checks = Mapping[str, Check]
"""Checks by the name of a field of the body: what the account or the settings say of its value."""

Between = Callable[[Callable[[str], Any]], Iterator[Fault]]
"""`faults_between` of a body, a static method: what fields demand of each other.

Reads them by their names (`customer.phone`). None is none; what was given is something, also if it is faulty.
"""

DEPTH_MAX = 32
_INTEGER_DIGITS_MAX = 30
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")

_NO_MORE: Checks = MappingProxyType({})

_plain = msgspec.json.Decoder()


def must(sentence: str, *, check: Check | None = None, **constraints: Any) -> Meta:
    """Meta of a field: JSON Schema constraints, the sentence a person reads when they are broken, and a check."""
    return Meta(**constraints, description=sentence, extra={"must": sentence, "check": check})


def parsed_body(kind: type[T], body: bytes, more: Checks = _NO_MORE) -> T:
    """The body as `kind`, its fields checked as it says and by `more`. Raises ValidationError with every fault."""
    form = _form(kind)
    if b"\\" not in body:
        try:
            document = _plain.decode(body)
            if _repeats_no_key(document, body) and not form.hides_a_number_in_a_string(document):
                value = form.decode(body)
                if next(form.faults(value), None) is None and next(_more_faults(value, more), None) is None:
                    return value
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # the careful way says what is wrong
    return _parsed_carefully(form, body, more)


def _more_faults(value: Struct, more: Checks) -> Iterator[Fault]:
    for name, check in more.items():
        part = getattr(value, name)
        if part is not None and part is not UNSET:
            yield from check(part)


def _repeats_no_key(document: Any, body: bytes) -> bool:
    """Without escapes every string has exactly two quotes; a repeated key leaves more of them than strings."""
    return 2 * _strings_in([document], DEPTH_MAX) == body.count(b'"')


def _strings_in(node: dict[str, Any] | list[Any], depth_left: int) -> int:
    if depth_left < 0:
        raise RecursionError
    strings = len(node) if isinstance(node, dict) else 0
    for value in node.values() if isinstance(node, dict) else node:
        if type(value) is str:
            strings += 1
        elif type(value) in (dict, list):
            strings += _strings_in(value, depth_left - 1)
    return strings


class _Field:
    """One field of a body, as its annotation describes it."""

    def __init__(self, field: msgspec.structs.FieldInfo, hint: Any) -> None:
        options = [hint] if get_origin(hint) in (Annotated, dict, list) else list(get_args(hint)) or [hint]
        self.takes_null = type(None) in options and UnsetType in options
        (self.type,) = [option for option in options if option not in (type(None), UnsetType)]
        meta = next((extra for extra in getattr(self.type, "__metadata__", ()) if isinstance(extra, Meta)), Meta())
        described: dict[str, Any] = meta.extra or {}
        bare = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        self.name = field.name
        self.required = field.required
        self.must: str = described.get("must", "This value is not of the right kind.")
        self.check: Check | None = described.get("check")
        self.is_decimal = bare is Decimal
        self.is_map = get_origin(bare) is dict
        self.map_kinds = (str, type(None)) if self.is_map and type(None) in get_args(get_args(bare)[1]) else (str,)
        self.form: _Form[Any] | None = _form(bare) if isinstance(bare, type) and issubclass(bare, Struct) else None


class _Form(Generic[T]):
    """The description of a body, read once from its Struct."""

    def __init__(self, kind: type[T]) -> None:
        hints = get_type_hints(kind, include_extras=True)
        self.kind = kind
        self.fields = [_Field(field, hints[field.name]) for field in msgspec.structs.fields(kind)]
        self.decode = msgspec.json.Decoder(kind).decode
        self._decimal_names = [field.name for field in self.fields if field.is_decimal]
        self._checked = [field for field in self.fields if field.check or field.form]
        self.between: Between = getattr(kind, "faults_between", _nothing_between)

    def hides_a_number_in_a_string(self, document: Any) -> bool:
        """msgspec takes "5.00" for a Decimal; the contract does not."""
        return type(document) is dict and any(type(document.get(name)) is str for name in self._decimal_names)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

    def faults(self, value: T, path: str = "") -> Iterator[Fault]:
        """What the checks find in a body whose types are right."""
        for field in self._checked:
            part = getattr(value, field.name)
            if part is None or part is UNSET:
                continue
            if field.check:
                for fault in field.check(part):
                    yield Fault(path + field.name + fault.field, fault.message)
            if field.form:
                yield from field.form.faults(part, f"{path}{field.name}.")
        yield from self.between(lambda name: _part_of(value, name))


def _part_of(value: Any, name: str) -> Any:
    for step in name.split("."):
        value = getattr(value, step, None)
    return None if value is UNSET else value


def _nothing_between(field: Callable[[str], Any]) -> Iterator[Fault]:
    del field
    return iter(())


_forms: dict[type[Struct], _Form[Any]] = {}


def _form(kind: type[T]) -> _Form[T]:
    if kind not in _forms:
        _forms[kind] = _Form(kind)
    return _forms[kind]


# The careful way.


class _Repeating(dict[str, Any]):
    """A JSON object in which keys were repeated; JSON allows it, we cannot know which value was meant."""

    repeated: set[str]


def _parsed_carefully(form: _Form[T], body: bytes, more: Checks) -> T:
    document = _document(body)
    faults = {fault.field: fault for fault in reversed([*_unstorable(document, "", DEPTH_MAX)])}
    value = _converted(form, document, "", faults, more)
    if value is None or faults:
        raise ValidationError(*faults.values())
    return value


def _document(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise ValidationError(Fault("body", "The body is empty; send a JSON object."))
    try:
        document = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_refused_constant,
        )
    except UnicodeDecodeError:
        raise ValidationError(Fault("body", "The body is not UTF-8; send JSON in UTF-8.")) from None
    except RecursionError:
        raise ValidationError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValidationError(Fault("body", f"The body is not JSON: {error.msg} ({where}).")) from None
    except ValueError as error:
        raise ValidationError(Fault("body", f"The body is not JSON: {error}.")) from None
    if not isinstance(document, dict):
        raise ValidationError(Fault("body", "The body must be a JSON object: {…}."))
    return document  # pyright: ignore[reportUnknownVariableType]


_TOO_DEEP = Fault("body", f"The body is nested more than {DEPTH_MAX} levels deep.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating = _Repeating(found)
    repeating.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}
    return repeating


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond anything a Decimal holds
        return Decimal("NaN")


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else _decimal(text)


def _refused_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _unstorable(node: Any, path: str, depth_left: int) -> Iterator[Fault]:
    """Repeated keys, characters that no text can hold, and too deep nesting, wherever they are."""
    if isinstance(node, str):
        if _UNSTORABLE.search(node):
            yield Fault(path or "body", "This text holds a NUL character or half of a surrogate pair.")
        return
    if not isinstance(node, (dict, list)):
        return
    if depth_left == 0:
        yield _TOO_DEEP
        return
    if isinstance(node, list):
        for part in node:  # pyright: ignore[reportUnknownVariableType]
            yield from _unstorable(part, path, depth_left - 1)
        return
    for name in sorted(node.repeated if isinstance(node, _Repeating) else ()):
        yield Fault(_below(path, name), "This key stands in its object more than once.")
    for name, part in node.items():  # pyright: ignore[reportUnknownVariableType]
        if _UNSTORABLE.search(name):  # pyright: ignore[reportUnknownArgumentType]
            yield Fault(path or "body", "A key holds a NUL character or half of a surrogate pair.")
        else:
            yield from _unstorable(part, _below(path, name), depth_left - 1)  # pyright: ignore[reportUnknownArgumentType]


def _below(path: str, name: str) -> str:
    # What is echoed must be writable, and no longer than a line.
    shown = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", name)[:100]
    return f"{path}.{shown}" if path else shown


def _converted(
    form: _Form[T], document: dict[str, Any], path: str, faults: dict[str, Fault], more: Checks = _NO_MORE
) -> T | None:
    """The document as the form's Struct, or None; adds to `faults` what is wrong with it, one for each field."""
    values: dict[str, Any] = {}
    complete = True
    for field in form.fields:
        where = path + field.name
        plain = document.get(field.name)
        if plain is None:
            if field.required:
                complete = False
                faults.setdefault(where, Fault(where, f"This field is required. {field.must}"))
            elif field.takes_null and field.name in document:
                values[field.name] = None
            continue
        found = list(_faults_of(field, plain, where, values, faults))
        if not found and field.name in values and field.name in more:
            found = [Fault(where + fault.field, fault.message) for fault in more[field.name](values[field.name])]
        for fault in found:
            faults.setdefault(fault.field, fault)
        complete = complete and field.name in values
    for fault in form.between(lambda name: _given(document, name)):
        faults.setdefault(path + fault.field, Fault(path + fault.field, fault.message))
    return form.kind(**values) if complete else None


def _given(document: Any, name: str) -> Any:
    for step in name.split("."):
        document = document.get(step) if isinstance(document, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return document  # pyright: ignore[reportUnknownVariableType]


def _faults_of(
    field: _Field, plain: Any, where: str, values: dict[str, Any], faults: dict[str, Fault]
) -> Iterator[Fault]:
    """Put the converted value into `values`, or say why it cannot be."""
    if field.form:
        if not isinstance(plain, dict):
            yield Fault(where, field.must)
            return
        value = _converted(field.form, plain, f"{where}.", faults)  # pyright: ignore[reportUnknownArgumentType]
        if value is not None:
            values[field.name] = value
        return
    if field.is_map and isinstance(plain, dict):
        kinds = field.map_kinds
        wrong = [name for name, part in plain.items() if not isinstance(part, kinds)]  # pyright: ignore[reportUnknownVariableType]
        if wrong:
            for name in wrong:  # pyright: ignore[reportUnknownVariableType]
                yield Fault(_below(where, name), "This value must be a string.")  # pyright: ignore[reportUnknownArgumentType]
            if field.check:
                texts = {name: part for name, part in plain.items() if isinstance(part, kinds)}  # pyright: ignore[reportUnknownVariableType]
                for fault in field.check(texts):
                    yield Fault(where + fault.field, fault.message)
            return
    if field.is_decimal and (isinstance(plain, str) or (isinstance(plain, Decimal) and not plain.is_finite())):
        yield Fault(where, field.must)
        return
    try:
        value = msgspec.convert(plain, field.type)
    except msgspec.ValidationError:
        yield Fault(where, field.must)
        return
    values[field.name] = value
    if field.check:
        for fault in field.check(value):
            yield Fault(where + fault.field, fault.message)
