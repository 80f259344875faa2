"""What the fuzzer (Schemathesis) knows beyond the reference: forms JSON Schema cannot write, rules it cannot say.

It is loaded by the fuzzer's own process; `fuzzer.toml` names it.
"""

import itertools
import os
import re
from collections.abc import Callable
from datetime import UTC
from typing import Any, cast

import httpx2
import schemathesis
from hypothesis import strategies as st
from schemathesis import openapi

# A number is one that a country has given out, a cursor goes with its filters, dates lie in order, and so on: the
# fields of which only a sentence can say all that is asked.
_BEYOND_A_SCHEMA = {
    "cursor": "made by us, for one list and its filters",
    "date_from": "not after date_to",
    "phone": "a number that a country has given out; a charge without one takes the payment's",
    "customer.phone": "the same; and a prompt needs one",
    "email": "of a form that no pattern holds; a customer has one, or a phone",
    "customer.email": "the same",
    "customer.id": "a customer who is there",
    "mobile_money_provider": "a charge without one takes the payment's",
    "expires_at": "in time to come",
    "url": "with a host that a name server could know",
    "callback_url": "the same",
    "events": "`*` stands alone",
}
_SENTENCES = (
    "There is no such field; without an amount all that is left is refunded.",
    "The sandbox clock ends in the year 2999.",
)

_hook = cast("Any", schemathesis).hook  # its types are not written out
_OWN_KEY_ID = os.environ.get("ZEMBIL_FUZZED_KEY_ID")
_NOBODYS_KEY_ID = "key_00000000000000000000000000"

_replayed: set[str] = set()

_NAMES = st.from_regex("[a-z][a-z0-9]{0,20}", fullmatch=True)
_ETHIOPIAN = st.integers(0, 10**8 - 1).map(lambda number: f"+2519{number:08}")
_OF_THE_SANDBOX = st.integers(0, 9).map(lambda number: f"+25190000000{number}")  # each with a fate of its own

openapi.format("phone", st.one_of(_ETHIOPIAN, _OF_THE_SANDBOX))
openapi.format("email", st.builds("{}@{}.example".format, _NAMES, _NAMES))
# No name server knows `.invalid`: the events of these addresses go nowhere.
openapi.format("uri", st.builds("http{}://{}.invalid/{}".format, st.sampled_from(["", "s"]), _NAMES, _NAMES))
openapi.format("date-time", st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()))


@_hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Keep a failure, unless data that fits its schema was refused for what no schema can say, or a wallet was away."""
    del context
    kind = type(failure).__name__
    if kind == "EnsureResourceAvailability":
        # A replayed creation is answered as it was, also when its resource is gone since then.
        return _replayed.isdisjoint(case.path_parameters.values())
    if kind == "ServerError":
        return not _is_a_wallet_away(case, response)
    if kind != "RejectedPositiveData" or response.status_code != 400:
        return True
    return not all(_is_beyond_a_schema(fault, case.body) for fault in response.json()["error"]["details"])


def _is_a_wallet_away(case: Any, response: Any) -> bool:
    """Whether nothing could be sent to the network of the phone to be charged, as it is with +251900000008."""
    return (
        case.operation.definition.raw["operationId"] == "charge_payment"
        and response.status_code == 503
        and "retry-after" in response.headers
        and response.json()["error"]["code"] == "provider_unavailable"
    )


def _is_beyond_a_schema(fault: dict[str, str], sent: Any) -> bool:
    if fault["field"] in _BEYOND_A_SCHEMA or fault["message"] in _SENTENCES:
        return True
    # To JSON Schema 5.0 is an integer; we take numbers as they are written.
    body = cast("dict[str, Any]", sent if isinstance(sent, dict) else {})
    return isinstance(body.get(fault["field"]), float) and "whole" in fault["message"]


@_hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Remember what a repeated request told of."""
    del context, case
    if "idempotent-replayed" in response.headers:
        _replayed.add(response.json()["data"].get("id"))


@_hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Let most requests meet something that is there, in a state in which they can succeed; and never our own key."""
    del context, kwargs
    if case.path_parameters.get("key_id") == _OWN_KEY_ID:
        case.path_parameters["key_id"] = _NOBODYS_KEY_ID
    if case.meta is None or case.meta.phase.name.value == "stateful":
        return  # there each request has the ids that the one before was answered with
    name = next((name for name in _MADE if name in case.path_parameters), None)
    if name and _is_one_in_four_not() and re.fullmatch(_FORM, str(case.path_parameters[name])):
        case.path_parameters[name] = _MADE[name]() or case.path_parameters[name]
    elif case.operation.definition.raw["operationId"] == "create_refund" and _is_a_refund(case.body):
        case.body["payment_id"] = _paid()


_FORM = r"[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}"
_turns = itertools.count(1)
_api = httpx2.Client(
    base_url=os.environ.get("ZEMBIL_FUZZED_URL", ""),
    headers={"Authorization": f"Bearer {os.environ.get('ZEMBIL_FUZZED_KEY', '')}"},
    timeout=30,
)


def _is_one_in_four_not() -> bool:
    return next(_turns) % 4 != 0


def _is_a_refund(sent: Any) -> bool:
    body = cast("dict[str, Any]", sent if isinstance(sent, dict) else {})
    return re.fullmatch(_FORM, str(body.get("payment_id"))) is not None


def _made(path: str, body: dict[str, Any]) -> Any:
    """What was made; None if it is refused, as when a number was prompted too often."""
    answer = _api.post(path, json=body)
    return answer.json()["data"] if answer.is_success else None


def _pending() -> str:
    return _made("/payments", {"amount": 1000, "currency": "ETB", "customer": {"phone": "+251911223344"}})["id"]


def _paid() -> str:
    return _made(f"/test/payments/{_pending()}/complete", {})["id"]


def _asked_for() -> str:
    return _made("/refunds", {"payment_id": _paid(), "amount": 10})["id"]


def _in_doubt() -> str | None:
    charge = {"phone": "+251900000005", "mobile_money_provider": "telebirr"}
    charged = _made(f"/payments/{_pending()}/charge", charge)
    return charged and charged["charge"]["id"]


_MADE: dict[str, Callable[[], str | None]] = {
    "payment_id": _pending,
    "refund_id": _asked_for,
    "charge_id": _in_doubt,
}
