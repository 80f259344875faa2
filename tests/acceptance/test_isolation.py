"""Who may do what: every operation, as another merchant, with the other environment's key, in each role, revoked.

The table says it a second time, by hand, as decided; the code derives it from permissions. An operation without a row
fails the test.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.support import money
from tests.support.gateway import Gateway, Merchant
from tests.support.reference import Described, document_of, operations

ROLES = ("admin", "developer", "read_only")

# Who may, in the sandbox and in live: a admin, d developer, r read-only.
EVERYONE, WRITERS, ADMINS = ("adr", "adr"), ("ad", "ad"), ("a", "a")
OF_WEBHOOKS, OF_THE_SANDBOX = ("ad", "a"), ("ad", "")

# A body that is valid if the resource is one's own; None: the operation takes none.
MATRIX: dict[str, tuple[tuple[str, str], dict[str, Any] | None]] = {
    "create_payment": (WRITERS, {"amount": 100, "currency": "ETB"}),
    "list_payments": (EVERYONE, None),
    "get_payment": (EVERYONE, None),
    "charge_payment": (WRITERS, {"phone": "+251911223344", "mobile_money_provider": "telebirr"}),
    "cancel_payment": (WRITERS, {}),
    "create_refund": (WRITERS, {"payment_id": "{payment_id}", "amount": 1}),
    "list_refunds": (EVERYONE, None),
    "get_refund": (EVERYONE, None),
    "approve_refund": (ADMINS, {}),
    "reject_refund": (ADMINS, {}),
    "create_customer": (WRITERS, {"email": "abebe@example.com"}),
    "list_customers": (EVERYONE, None),
    "get_customer": (EVERYONE, None),
    "update_customer": (WRITERS, {"name": "Abebe"}),
    "erase_customer": (ADMINS, None),
    "create_webhook": (OF_WEBHOOKS, {"url": "https://shop.example.et/hooks", "events": ["*"]}),
    "list_webhooks": (EVERYONE, None),
    "get_webhook": (EVERYONE, None),
    "update_webhook": (OF_WEBHOOKS, {"description": "Till"}),
    "delete_webhook": (OF_WEBHOOKS, None),
    "rotate_webhook_secret": (OF_WEBHOOKS, {}),
    "send_test_event": (OF_WEBHOOKS, {"type": "payment.created"}),
    "recover_deliveries": (OF_WEBHOOKS, {"since": "2026-01-01", "dry_run": True}),
    "list_deliveries": (EVERYONE, None),
    "get_delivery": (EVERYONE, None),
    "redeliver": (OF_WEBHOOKS, {}),
    "list_events": (EVERYONE, None),
    "get_event": (EVERYONE, None),
    "get_balance": (EVERYONE, None),
    "list_ledger_entries": (EVERYONE, None),
    "list_charges_in_doubt": (ADMINS, None),
    "ask_about_charge": (ADMINS, {}),
    "create_key": (ADMINS, {"name": "Till", "role": "read_only"}),
    "list_keys": (ADMINS, None),
    "roll_key": (ADMINS, {}),
    "revoke_key": (ADMINS, None),
    "get_sandbox_clock": (OF_THE_SANDBOX, None),
    "advance_sandbox_clock": (OF_THE_SANDBOX, {"advance_seconds": 1}),
    "make_sandbox_event": (OF_THE_SANDBOX, {"type": "customer.created"}),
    "resolve_sandbox_charge": (OF_THE_SANDBOX, {"outcome": "failed"}),
    "complete_sandbox_payment": (OF_THE_SANDBOX, {}),
    "fail_sandbox_payment": (OF_THE_SANDBOX, {}),
    "cancel_sandbox_payment": (OF_THE_SANDBOX, {}),
}

# Identifiers of the right form that name nothing.
_NOTHING = "0" * 26
UNKNOWN = {
    "payment_id": f"pay_{_NOTHING}",
    "refund_id": f"ref_{_NOTHING}",
    "customer_id": f"cus_{_NOTHING}",
    "webhook_id": f"whk_{_NOTHING}",
    "delivery_id": f"dlv_{_NOTHING}",
    "event_id": f"evt_{_NOTHING}",
    "charge_id": f"chg_{_NOTHING}",
    "key_id": f"key_{_NOTHING}",
}

Ids = dict[str, str]


@dataclass(frozen=True)
class Caller:
    """Somebody with a key, at one of the two addresses."""

    origin: str
    key: str
    livemode: bool = False

    def asks(self, one: Described, named: Ids = UNKNOWN) -> httpx2.Response:
        """Ask for an operation on the things with these ids."""
        _, body = MATRIX[one.id]
        filled = None if body is None else {name: _filled(part, named) for name, part in body.items()}
        return httpx2.request(
            one.method,
            f"{self.origin}{'/v1' if self.livemode else '/sandbox/v1'}{_filled(one.path, named)}",
            json=filled,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=30,
        )


def _filled(template: Any, named: Ids) -> Any:
    if not isinstance(template, str):
        return template
    return re.sub(r"\{([a-z_]+)\}", lambda found: named[found[1]], template)


def _names_something(one: Described) -> bool:
    """Whether the operation is about a thing that has to exist."""
    return "{" in one.path or any("{" in str(part) for part in (MATRIX[one.id][1] or {}).values())


def _code(answer: httpx2.Response) -> str | None:
    return answer.json().get("error", {}).get("code")


@pytest.fixture(scope="module")
def described(gateway: Gateway) -> list[Described]:
    return [*operations(document_of(gateway.origin))]


@pytest.fixture(scope="module")
def stranger(gateway: Gateway) -> Iterator[Merchant]:
    new = gateway.new_merchant("A stranger")
    yield new
    new.close()


@pytest.fixture(scope="module")
def owned(shop: Merchant) -> Ids:
    """One of everything that a merchant has in the sandbox."""
    api = shop.client()

    def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = api.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["data"]

    webhook = made("/webhooks", {"url": "http://127.0.0.1:9/hooks", "events": ["*"]})
    payment = money.paid(api)
    event = api.get("/events", params={"object": payment["id"]}).json()["data"]["events"][0]
    assert eventually(lambda: bool(_deliveries(api, webhook["id"])), seconds=10)
    return {
        "payment_id": payment["id"],
        "refund_id": money.refund(api, payment, 10)["id"],
        "customer_id": made("/customers", {"email": "owner@example.com"})["id"],
        "webhook_id": webhook["id"],
        "delivery_id": _deliveries(api, webhook["id"])[0]["id"],
        "event_id": event["id"],
        "charge_id": api.get("/ledger/entries").json()["data"]["entries"][0]["source"],
        "key_id": made("/keys", {"name": "Till", "role": "read_only"})["id"],
    }


def _deliveries(api: httpx2.Client, webhook_id: str) -> list[dict[str, Any]]:
    return api.get(f"/webhooks/{webhook_id}/deliveries").json()["data"]["deliveries"]


def test_every_operation_has_a_row_in_the_matrix(described: list[Described]) -> None:
    assert {one.id for one in described} == MATRIX.keys()


@pytest.mark.parametrize("livemode", [False, True], ids=["sandbox", "live"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_the_table_says(
    gateway: Gateway, described: list[Described], role: str, *, livemode: bool
) -> None:
    own = gateway.new_merchant("A merchant with roles")
    caller = Caller(gateway.origin, (own.live if livemode else own.sandbox)[f"{role}_key"], livemode)
    for one in described:
        answer = caller.asks(one)
        may = role[0] in MATRIX[one.id][0][livemode]
        if livemode and one.sandbox_only:
            assert (answer.status_code, _code(answer)) == (404, "resource_not_found"), one.id
        elif may:
            # It gets as far as the things themselves; those it names do not exist.
            assert answer.status_code in ((404,) if _names_something(one) else (200, 201)), (one.id, answer.text)
        else:
            assert (answer.status_code, _code(answer)) == (403, "permission_denied"), one.id


def test_what_is_another_merchants_is_not_there(
    gateway: Gateway, described: list[Described], shop: Merchant, stranger: Merchant, owned: Ids
) -> None:
    def everything() -> list[Any]:
        api, reads = shop.client(), [one for one in described if one.method == "GET" and one.id != "get_sandbox_clock"]
        return [api.get(_filled(one.path, owned)).json() for one in reads]

    before = _settled(everything)
    caller = Caller(gateway.origin, stranger.sandbox["admin_key"])
    naming = [one for one in described if _names_something(one)]
    assert len(naming) > 20
    for one in naming:
        answer, of_nothing = caller.asks(one, owned), caller.asks(one)
        assert (answer.status_code, _code(answer)) == (404, "resource_not_found"), (one.id, answer.text)
        assert answer.content == of_nothing.content, one.id
    for one in described:
        if one.method == "GET" and one not in naming:
            shown = caller.asks(one).text
            assert not [value for value in owned.values() if value in shown], one.id
    assert everything() == before


def _settled(read: Callable[[], list[Any]]) -> list[Any]:
    """What is read once it does not change any more."""
    found = [read()]

    def same() -> bool:
        found.append(read())
        return found[-1] == found[-2]

    assert eventually(same, seconds=20)
    return found[-1]


def test_another_merchants_customer_cannot_be_linked(stranger: Merchant, owned: Ids) -> None:
    body = {"amount": 100, "currency": "ETB", "customer": {"id": owned["customer_id"]}}
    answer = stranger.client().post("/payments", json=body)
    assert (answer.status_code, answer.json()["error"]["details"][0]["field"]) == (400, "customer.id")


def test_the_live_account_does_not_see_the_sandboxs(
    gateway: Gateway, described: list[Described], shop: Merchant, owned: Ids
) -> None:
    caller = Caller(gateway.origin, shop.live["admin_key"], livemode=True)
    for one in described:
        if _names_something(one):
            answer = caller.asks(one, owned)
            assert (answer.status_code, _code(answer)) == (404, "resource_not_found"), (one.id, answer.text)


@pytest.mark.parametrize("livemode", [False, True], ids=["sandbox", "live"])
def test_the_other_environments_key_opens_nothing(
    gateway: Gateway, described: list[Described], shop: Merchant, owned: Ids, *, livemode: bool
) -> None:
    for role in ROLES:
        others = (shop.sandbox if livemode else shop.live)[f"{role}_key"]
        caller = Caller(gateway.origin, others, livemode)
        for one in described:
            answer = caller.asks(one, owned)
            assert (answer.status_code, _code(answer)) == (401, "authentication_failed"), one.id


@pytest.mark.parametrize("livemode", [False, True], ids=["sandbox", "live"])
def test_a_revoked_key_opens_nothing(
    gateway: Gateway, described: list[Described], shop: Merchant, owned: Ids, *, livemode: bool
) -> None:
    api = shop.client(livemode=livemode)
    for role in ROLES:
        key = api.post("/keys", json={"name": "Lost", "role": role}).json()["data"]
        assert api.delete(f"/keys/{key['id']}").status_code == 200
        caller = Caller(gateway.origin, key["key"], livemode)
        for one in described:
            answer = caller.asks(one, owned)
            assert (answer.status_code, _code(answer)) == (401, "authentication_failed"), one.id
