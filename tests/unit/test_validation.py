"""Bodies: the quick way and the careful way agree, nothing breaks them, and every fault is told at once."""

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType

from zembil.customers.api import CreateCustomer
from zembil.errors import Fault, ValidationError
from zembil.payments.api import CreatePayment
from zembil.web import fields
from zembil.web.validation import DEPTH_MAX, must, parsed_body


def check_positive(amount: Decimal) -> Iterator[Fault]:
    if not amount.is_finite() or amount <= 0:
        yield Fault("", "more than nothing")


class Part(Struct, frozen=True):
    phone: fields.Phone | None = None
    name: Annotated[str, must("a short text", max_length=5)] | None = None


class Order(Struct, frozen=True):
    """A body with every kind of field that ours have."""

    amount: Annotated[Decimal, must("a number", check=check_positive)]
    currency: Annotated[Literal["ETB"], must("ETB")]
    part: Annotated[Part, must("an object")] | None = None
    seconds: Annotated[int, must("whole seconds", ge=1, le=1000)] | None = None
    events: Annotated[list[str], must("texts", min_length=1, max_length=3)] | None = None
    metadata: fields.Metadata | None = None
    note: fields.Description | None = None


VALID: dict[str, Any] = {
    "amount": 100.5,
    "currency": "ETB",
    "part": {"phone": "+251911223344", "name": "ሰላም"},
    "seconds": 60,
    "events": ["a", "b"],
    "metadata": {"k": "v", "a.b": "é"},
    "note": "Two bags",
}


def outcome(body: bytes) -> Order | list[str]:
    """What a body is read as, or the fields that are wrong with it."""
    try:
        return parsed_body(Order, body)
    except ValidationError as refused:
        return sorted(fault.field for fault in refused.details)


def carefully(body: bytes) -> Order | list[str]:
    """The same body with an unknown field that holds an escape, which no quick way takes."""
    end = body.rindex(b"}")
    assert b"escape" not in body
    return outcome(body[:end] + b',"escape":"\\n"' + body[end:])


numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["0", "-0", "0.0", "1e400", "1e-400", "1E5", "1e9999999999999999999", "1e-9999999999999999999", "1.0"]
    ),
)
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\\\""), max_size=8).map(
    lambda text: json.dumps(text.replace("\n", "").replace("\r", "").replace("\t", ""), ensure_ascii=False)
).filter(lambda text: "\\" not in text)  # fmt: skip
constants = st.sampled_from(["null", "true", "false", '"ETB"', '"+251911223344"', '""', '"5.00"', '"NaN"', "[]", "{}"])
values = st.recursive(
    numbers | texts | constants,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: f"[{','.join(parts)}]"),
        st.lists(st.tuples(st.sampled_from(['"phone"', '"name"', '"k"', '"x"']), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=8,
)
names = st.sampled_from([*VALID, "unknown"])


@given(st.lists(st.tuples(names, values), max_size=4), st.booleans())
@settings(max_examples=500)
def test_the_quick_way_and_the_careful_way_agree(changes: list[tuple[str, str]], repeats: bool) -> None:
    parts = [(name, json.dumps(value, ensure_ascii=False)) for name, value in VALID.items()]
    if not repeats:
        changed = {name for name, _ in changes}
        parts = [(name, text) for name, text in parts if name not in changed]
    body = ("{" + ",".join(f'"{name}":{text}' for name, text in [*parts, *changes]) + "}").encode()
    assume(b"\\" not in body)
    assert outcome(body) == carefully(body)


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(min_size=1, max_size=4)), min_size=1, max_size=6
)
SOURCES = [
    json.dumps(VALID, ensure_ascii=False).encode(),
    json.dumps(VALID).encode(),
    b'{"amount":1,"currency":"ETB","note":"\\ud83d\\ude00\\u0000"}',
    b'{"amount":[[[[{"a":[{}]}]]]],"currency":"ETB","amount":NaN}',
]


@given(st.sampled_from(SOURCES), MUTATIONS)
@settings(max_examples=500)
def test_no_damage_to_a_body_breaks_the_reader(source: bytes, mutations: list[tuple[int, int, bytes]]) -> None:
    body = bytearray(source)
    for place, deleted, inserted in mutations:
        body[place % (len(body) + 1) : place % (len(body) + 1) + deleted] = inserted
    found = outcome(bytes(body))
    assert isinstance(found, Order) or all(field.encode() for field in found)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    outcome(body)


WRITTEN = {name: json.dumps(value, ensure_ascii=False) for name, value in VALID.items()}  # without an escape
WRONG: dict[str, tuple[str, str]] = {
    "amount": ('"5"', "amount"),
    "currency": ('"USD"', "currency"),
    "part": ('{"phone":"0911223344"}', "part.phone"),
    "seconds": ("0", "seconds"),
    "events": ("[]", "events"),
    "metadata": ('{"k":1}', "metadata.k"),
    "note": ("1", "note"),
}


@given(st.sets(st.sampled_from(list(WRONG)), min_size=1))
def test_every_fault_is_told_at_once(wrong: set[str]) -> None:
    parts = [f'"{name}":{WRONG[name][0] if name in wrong else WRITTEN[name]}' for name in VALID]
    assert outcome(f"{{{','.join(parts)}}}".encode()) == sorted(WRONG[name][1] for name in wrong)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("escape", ["", ',"x":"\\n"'])
def test_a_single_fault_is_told_on_either_way(name: str, escape: str) -> None:
    parts = [f'"{field}":{WRONG[name][0] if field == name else WRITTEN[field]}' for field in VALID]
    assert outcome(f"{{{','.join(parts)}{escape}}}".encode()) == [WRONG[name][1]]


def test_faults_of_all_kinds_are_told_together() -> None:
    body = (
        b'{"currency":"USD","part":{"name":"too long","name":1},"metadata":{"":"","k":1},"seconds":1.5,"x":"\\u0000"}'
    )
    assert outcome(body) == ["amount", "currency", "metadata", "metadata.k", "part.name", "seconds", "x"]


def test_a_field_has_one_fault() -> None:
    assert outcome(b'{"amount":"\\ud800","amount":-1,"currency":"ETB"}') == ["amount"]


def test_the_callers_own_checks_are_told_with_the_others() -> None:
    def check_small(amount: Decimal) -> Iterator[Fault]:
        if amount > 5:
            yield Fault("", "too much")

    assert parsed_body(Order, b'{"amount":5,"currency":"ETB"}', {"amount": check_small}).amount == 5
    for body in (b'{"amount":6,"currency":"ETB","seconds":0}', b'{"amount":6,"currency":"ETB","seconds":0,"x":"\\n"}'):
        with pytest.raises(ValidationError) as refused:
            parsed_body(Order, body, {"amount": check_small, "note": lambda _: iter(())})
        assert [fault.field for fault in refused.value.details] == ["amount", "seconds"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("escape", ["", ',"y":"\\n"'])
def test_nesting_ends_at_the_decided_depth(opening: str, escape: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(levels: int) -> bytes:
        inner = opening * levels + "1" + closing * levels
        return f'{{"amount":1,"currency":"ETB","x":{inner}{escape}}}'.encode()

    assert isinstance(outcome(nested(DEPTH_MAX - 1)), Order)
    assert outcome(nested(DEPTH_MAX)) == ["body"]
    assert outcome(nested(20_000)) == ["body"]


def test_lengths_are_counted_in_code_points() -> None:
    family = "👩\u200d👩\u200d👧\u200d👦"  # seven of them
    for text, fits in (("😀" * 500, True), ("😀" * 501, False), (family * 71 + "abc", True), (family * 72, False)):
        body = json.dumps({"amount": 1, "currency": "ETB", "note": text}, ensure_ascii=False).encode()
        assert isinstance(outcome(body), Order) is fits
        assert isinstance(carefully(body), Order) is fits


def test_an_amount_is_never_a_float_on_the_way() -> None:
    for text in ("0.1", "0.10", "4.35", "123456789.123456789123456789", "1e2"):
        for more in ("", ',"x":"\\n"'):
            found = outcome(f'{{"amount":{text},"currency":"ETB"{more}}}'.encode())
            assert isinstance(found, Order)
            assert str(found.amount) == str(Decimal(text))


def test_a_name_that_is_told_is_short_and_can_be_written() -> None:
    (field,) = [outcome(b'{"amount":1,"currency":"ETB","' + b"k" * 5000 + b'":"\\u0000"}')]
    assert field == ["k" * 100]
    assert outcome(b'{"amount":1,"currency":"ETB","\\ud800":1,"\\ud800":2}') == ["body", "\N{REPLACEMENT CHARACTER}"]


def test_repeated_keys_cost_no_more_than_their_number() -> None:
    def seconds(keys: int) -> float:
        text = "".join(f',"k{number}":1' for number in range(keys))
        body = f'{{"amount":1,"currency":"ETB"{text},"k0":1}}'.encode()
        times: list[float] = []
        for _ in range(5):
            began = time.process_time()
            assert outcome(body) == ["k0"]
            times.append(time.process_time() - began)
        return min(times)

    # Eight times the keys cost eight times as much; a step for each pair of keys would cost sixty-four times as much.
    assert seconds(5600) < 32 * seconds(700)


def test_what_fields_demand_of_each_other_is_told_with_the_other_faults() -> None:
    body = b'{"amount":0,"currency":"ETB","mobile_money_provider":"telebirr","customer":{"email":"nobody"}}'
    with pytest.raises(ValidationError) as refused:
        parsed_body(CreatePayment, body)
    assert {fault.field for fault in refused.value.details} == {"amount", "customer.email", "customer.phone"}


FAULTY: list[tuple[type[Struct], bytes, set[str]]] = [
    (CreateCustomer, b'{"email":1}', {"email"}),
    (CreateCustomer, b'{"phone":[]}', {"phone"}),
    (CreateCustomer, b'{"email":null,"name":1}', {"email", "phone", "name"}),
    (
        CreatePayment,
        b'{"amount":1,"currency":"ETB","mobile_money_provider":"mpesa","customer":"x"}',
        {"customer", "customer.phone"},
    ),
    (
        CreatePayment,
        b'{"amount":1,"currency":"ETB","mobile_money_provider":"mpesa","customer":{"email":1,"phone":"+251911223344"}}',
        {"customer.email"},
    ),
    (
        CreatePayment,
        b'{"amount":1,"currency":"ETB","mobile_money_provider":"mpesa","customer":{"email":1}}',
        {"customer.email", "customer.phone"},
    ),
]


@pytest.mark.parametrize(("kind", "body", "faulty"), FAULTY)
def test_what_is_faulty_is_not_called_missing(kind: type[Struct], body: bytes, faulty: set[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        parsed_body(kind, body)
    assert {fault.field for fault in refused.value.details} == faulty


class Change(Struct, frozen=True):
    """The body of a change: null clears, absent keeps."""

    phone: fields.Phone | UnsetType | None = UNSET
    name: Annotated[str, must("a short text", max_length=5)] | UnsetType | None = UNSET
    metadata: fields.MetadataChange | UnsetType | None = UNSET


def change(body: bytes) -> Change | list[str]:
    try:
        return parsed_body(Change, body)
    except ValidationError as refused:
        return sorted(fault.field for fault in refused.details)


CHANGES: list[tuple[bytes, Change | list[str]]] = [
    (b"{}", Change()),
    (b'{"phone":null}', Change(phone=None)),
    (b'{"phone":null,"name":"Abebe"}', Change(phone=None, name="Abebe")),
    (b'{"metadata":null}', Change(metadata=None)),
    (b'{"metadata":{"a":null,"b":"c"}}', Change(metadata={"a": None, "b": "c"})),
    (b'{"metadata":{"a":1,"b":null}}', ["metadata.a"]),
    (b'{"metadata":[]}', ["metadata"]),
    (b'{"phone":7,"name":null}', ["phone"]),
    (b'{"phone":"0911223344"}', ["phone"]),
    (b'{"name":"Abebech"}', ["name"]),
]


@pytest.mark.parametrize(("body", "expected"), CHANGES)
def test_in_the_body_of_a_change_null_is_not_absent(body: bytes, expected: Change | list[str]) -> None:
    assert change(body) == expected
    more = b',"escape":"\\n"}' if len(body) > 2 else b'"escape":"\\n"}'
    assert change(body[:-1] + more) == expected


@pytest.mark.parametrize("number", ["1e9999999999999999999", "-1e9999999999999999999", "1e-9999999999999999999"])
def test_a_number_beyond_every_number_is_a_fault_before_any_check_sees_it(number: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parsed_body(CreatePayment, b'{"currency":"ETB","amount":%s}' % number.encode())
    assert [fault.field for fault in refused.value.details] == ["amount"]
