"""Who may do what: keys, environments, roles, and merchants that never see each other."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.database import account_of, query, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.requests import CLOCK, EVERY_CALL, PAYMENTS, WEBHOOKS, valid_json
from tests.support.wire import Header, RawAnswer, demand_a_refusal, demand_an_api_answer, exchange, request
from zembil.accounts.secrets import hashed, new_api_key

REMEMBERED_SECONDS = 1.0
SANDBOX, LIVE = "/sandbox/v1", "/v1"


def ask(shop: Merchant, headers: list[Header], target: str = f"{SANDBOX}/payments", method: str = "GET") -> RawAnswer:
    return exchange(shop.origin, request(method, target, headers=headers))


def bearer(credentials: str | bytes) -> list[Header]:
    text = credentials.encode() if isinstance(credentials, str) else credentials
    return [("Authorization", b"Bearer " + text)]


def with_other(key: str, place: int) -> str:
    """The key with one character changed."""
    other = "0" if key[place] != "0" else "1"
    return key[:place] + other + key[place:][1:]


Credentials = Callable[[Merchant], list[Header]]


def of_key(change: Callable[[str], str | bytes]) -> Credentials:
    """The Authorization header of a good key, changed."""
    return lambda shop: bearer(change(shop.sandbox["admin_key"]))


def whole(change: Callable[[str], str | bytes]) -> Credentials:
    """An Authorization header made of a good key."""
    return lambda shop: [("Authorization", change(shop.sandbox["admin_key"]))]


NO_KEY: dict[str, Credentials] = {
    "no header": lambda _: [],
    "an empty header": whole(lambda _: ""),
    "the scheme alone": whole(lambda _: "Bearer"),
    "the scheme and a space": whole(lambda _: "Bearer "),
    "a key without scheme": whole(lambda key: key),
    "another scheme": whole(lambda key: f"Basic {key}"),
    "Token": whole(lambda key: f"Token {key}"),
    "a colon behind the scheme": whole(lambda key: f"Bearer: {key}"),
    "a tab behind the scheme": whole(lambda key: f"Bearer\t{key}"),
    "a key in quotes": of_key(lambda key: f'"{key}"'),
    "a key in brackets": of_key(lambda key: f"<{key}>"),
    "two keys": of_key(lambda key: f"{key} {key}"),
    "two keys and a comma": of_key(lambda key: f"{key}, Bearer {key}"),
    "the same header twice": lambda shop: bearer(shop.sandbox["admin_key"]) * 2,
    "a good and a bad header": lambda shop: bearer(shop.sandbox["admin_key"]) + bearer("x"),
    "a bad and a good header": lambda shop: bearer("x") + bearer(shop.sandbox["admin_key"]),
    "three headers": lambda shop: bearer("x") * 2 + bearer(shop.sandbox["admin_key"]),
    "a key in another header": lambda shop: [("X-Api-Key", shop.sandbox["admin_key"])],
    "a key in a cookie": lambda shop: [("Cookie", f"api_key={shop.sandbox['admin_key']}")],
    "a word": of_key(lambda _: "secret"),
    "null": of_key(lambda _: "null"),
    "the beginning of a key": of_key(lambda _: "sk_test_"),
    "another kind of secret": of_key(lambda _: "whsec_" + "A" * 43 + "="),
    "one character more": of_key(lambda key: key + "0"),
    "one character less": of_key(lambda key: key[:-1]),
    "the first character changed": of_key(lambda key: with_other(key, 8)),
    "a character in the middle changed": of_key(lambda key: with_other(key, 30)),
    "the checksum changed": of_key(lambda key: with_other(key, -1)),
    "two characters swapped": of_key(lambda key: key[:8] + key[9] + key[8] + key[10:] if key[8] != key[9] else "x"),
    "the case changed": of_key(str.swapcase),
    "the case of the secret changed": of_key(lambda key: key[:8] + key[8:].swapcase()),
    "the prefix in capitals": of_key(lambda key: key[:8].upper() + key[8:]),
    "the other environment's prefix": of_key(lambda key: key.replace("sk_test_", "sk_live_")),
    "a key nobody has": lambda _: bearer(new_api_key(livemode=False)),
    "a live key nobody has": lambda _: bearer(new_api_key(livemode=True)),
    "the merchant's own live key": lambda shop: bearer(shop.live["admin_key"]),
    "a key with Latin-1": of_key(lambda key: key.encode() + b"\xe9"),
    "a key of other digits": of_key(lambda _: "sk_test_" + "٠" * 49),
    "a key with SQL": of_key(lambda key: f"{key}' OR '1'='1"),
    "20 kB": of_key(lambda _: "sk_test_" + "0" * 20_000),
    "a placeholder": of_key(lambda _: "sk_test_YOUR_KEY_HERE"),
}


@pytest.mark.parametrize("name", NO_KEY)
def test_whoever_shows_no_good_key_gets_the_same_refusal(shop: Merchant, name: str) -> None:
    answer = ask(shop, NO_KEY[name](shop))
    demand_a_refusal(answer, 401, "authentication_failed")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.body == ask(shop, []).body
    assert not any(name.startswith(("ratelimit", "x-ratelimit")) for name in answer.headers)


@pytest.mark.parametrize("name", ["api_key", "key", "access_token", "token", "Authorization"])
def test_a_key_in_the_address_opens_nothing_and_is_not_logged(gateway: Gateway, shop: Merchant, name: str) -> None:
    key = shop.sandbox["admin_key"]
    demand_a_refusal(ask(shop, [], f"{SANDBOX}/payments?{name}={key}"), 401, "authentication_failed")
    demand_a_refusal(ask(shop, [], f"{SANDBOX}/payments/{key}"), 401, "authentication_failed")
    assert key not in gateway.log.read_text(errors="replace")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
@pytest.mark.parametrize("spaces", [" ", "   "])
def test_the_scheme_may_be_written_in_any_case(shop: Merchant, scheme: str, spaces: str) -> None:
    assert ask(shop, [("Authorization", f"{scheme}{spaces}{shop.sandbox['admin_key']}")]).status == 200


@pytest.mark.parametrize("role", ["admin", "developer", "read_only"])
def test_a_key_works_in_its_own_environment_only(shop: Merchant, role: str) -> None:
    test_key, live_key = shop.sandbox[f"{role}_key"], shop.live[f"{role}_key"]
    assert ask(shop, bearer(test_key), f"{SANDBOX}/payments").status == 200
    assert ask(shop, bearer(live_key), f"{LIVE}/payments").status == 200
    demand_a_refusal(ask(shop, bearer(test_key), f"{LIVE}/payments"), 401, "authentication_failed")
    demand_a_refusal(ask(shop, bearer(live_key), f"{SANDBOX}/payments"), 401, "authentication_failed")


def test_a_revoked_key_opens_nothing_a_second_later(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["developer_key"]
    assert ask(shop, bearer(key)).status == 200
    query(gateway, "UPDATE api_keys SET revoked_at = now() WHERE secret_hash = $1", hashed(key))
    time.sleep(REMEMBERED_SECONDS)
    answer = ask(shop, bearer(key))
    demand_a_refusal(answer, 401, "authentication_failed")
    assert answer.body == ask(shop, []).body
    assert ask(shop, bearer(shop.sandbox["admin_key"])).status == 200


def test_an_expired_key_opens_nothing_from_that_instant(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    expired, expiring = shop.sandbox["developer_key"], shop.sandbox["read_only_key"]
    expire = "UPDATE api_keys SET expires_at = now() + make_interval(secs => $2) WHERE secret_hash = $1"
    query(gateway, expire, hashed(expired), -1.0)
    query(gateway, expire, hashed(expiring), 0.5)
    answer = ask(shop, bearer(expired))
    demand_a_refusal(answer, 401, "authentication_failed")
    assert answer.body == ask(shop, []).body
    assert ask(shop, bearer(expiring)).status == 200
    time.sleep(0.6)  # less than a key is remembered
    assert ask(shop, bearer(expiring)).body == answer.body


def test_a_sandbox_clock_makes_no_key_expire(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["admin_key"]
    query(gateway, "UPDATE api_keys SET expires_at = now() + interval '1 day' WHERE secret_hash = $1", hashed(key))
    sent = request("POST", f"{SANDBOX}{CLOCK}", key=key, body=b'{"advance_seconds":31622400}')
    assert exchange(shop.origin, sent).status == 200
    assert ask(shop, bearer(key)).status == 200


# Roles: what each may do, from the table of decisions, section 6.

ROLES = [
    # role, livemode, call, status
    *((role, livemode, PAYMENTS, 201) for role in ("admin", "developer") for livemode in (False, True)),
    *(("read_only", livemode, PAYMENTS, 403) for livemode in (False, True)),
    *((role, False, WEBHOOKS, status) for role, status in (("admin", 201), ("developer", 201), ("read_only", 403))),
    *((role, True, WEBHOOKS, status) for role, status in (("admin", 201), ("developer", 403), ("read_only", 403))),
    *((role, False, CLOCK, status) for role, status in (("admin", 200), ("developer", 200), ("read_only", 403))),
    *((role, True, CLOCK, 404) for role in ("admin", "developer", "read_only")),
]


@pytest.mark.parametrize(("role", "livemode", "call", "status"), ROLES)
def test_a_role_may_do_what_its_column_says(shop: Merchant, role: str, livemode: bool, call: str, status: int) -> None:
    key = (shop.live if livemode else shop.sandbox)[f"{role}_key"]
    body = valid_json(call).replace(b"http://", b"https://")
    answer = exchange(shop.origin, request("POST", (LIVE if livemode else SANDBOX) + call, key=key, body=body))
    demand_an_api_answer(answer)
    assert answer.status == status
    assert answer.code == {403: "permission_denied", 404: "resource_not_found"}.get(status)


@pytest.mark.parametrize("role", ["admin", "developer", "read_only"])
def test_every_role_may_look(shop: Merchant, role: str) -> None:
    created = create(shop)
    for path in ("/payments", f"/payments/{created['id']}"):
        assert ask(shop, bearer(shop.sandbox[f"{role}_key"]), SANDBOX + path).status == 200


def test_the_clock_is_not_for_those_who_only_look(shop: Merchant) -> None:
    answer = ask(shop, bearer(shop.sandbox["read_only_key"]), SANDBOX + CLOCK)
    demand_a_refusal(answer, 403, "permission_denied")


# Isolation.


def create(shop: Merchant, *, livemode: bool = False) -> dict[str, Any]:
    key = (shop.live if livemode else shop.sandbox)["admin_key"]
    body = valid_json(PAYMENTS, ',"reference":"order-1"') if livemode else valid_json(PAYMENTS)
    sent = request("POST", (LIVE if livemode else SANDBOX) + PAYMENTS, key=key, body=body)
    return exchange(shop.origin, sent).json["data"]


UNKNOWN_ID = "pay_00000000000000000000000000"


def test_another_merchants_payment_is_not_there_at_all(gateway: Gateway) -> None:
    ours, theirs = gateway.new_merchant(), gateway.new_merchant()
    payment = create(theirs)
    for role in ("admin", "developer", "read_only"):
        key = bearer(ours.sandbox[f"{role}_key"])
        answer = ask(ours, key, f"{SANDBOX}/payments/{payment['id']}")
        demand_a_refusal(answer, 404, "resource_not_found")
        assert answer.body == ask(ours, key, f"{SANDBOX}/payments/{UNKNOWN_ID}").body
        assert ask(ours, key, f"{SANDBOX}/payments").json["data"]["pagination"]["total"] == 0
    assert ask(theirs, bearer(theirs.sandbox["read_only_key"]), f"{SANDBOX}/payments/{payment['id']}").status == 200


def test_the_other_environments_payment_is_not_there_at_all(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    live, test = create(shop, livemode=True), create(shop)
    for base, keys, foreign in ((SANDBOX, shop.sandbox, live), (LIVE, shop.live, test)):
        key = bearer(keys["admin_key"])
        answer = ask(shop, key, f"{base}/payments/{foreign['id']}")
        demand_a_refusal(answer, 404, "resource_not_found")
        assert answer.body == ask(shop, key, f"{base}/payments/{UNKNOWN_ID}").body
        assert ask(shop, key, f"{base}/payments").json["data"]["pagination"]["total"] == 1


def test_a_reference_is_one_accounts_own(gateway: Gateway) -> None:
    body = valid_json(PAYMENTS, ',"reference":"order-1"')
    ours, theirs = gateway.new_merchant(), gateway.new_merchant()
    for shop, base, keys in ((ours, SANDBOX, ours.sandbox), (ours, LIVE, ours.live), (theirs, SANDBOX, theirs.sandbox)):
        sent = request("POST", base + PAYMENTS, key=keys["admin_key"], body=body)
        assert exchange(shop.origin, sent).status == 201
        demand_a_refusal(exchange(shop.origin, sent), 409, "duplicate_reference")


def test_a_clock_moves_one_account_only(gateway: Gateway) -> None:
    ours, theirs = gateway.new_merchant(), gateway.new_merchant()
    before = ask(theirs, bearer(theirs.sandbox["admin_key"]), SANDBOX + CLOCK).json["data"]["now"]
    sent = request("POST", SANDBOX + CLOCK, key=ours.sandbox["admin_key"], body=b'{"advance_seconds":31622400}')
    assert exchange(ours.origin, sent).json["data"]["now"][:4] > before[:4]
    assert ask(theirs, bearer(theirs.sandbox["admin_key"]), SANDBOX + CLOCK).json["data"]["now"][:4] == before[:4]


def test_nothing_of_a_refused_caller_is_stored(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    accounts = account_of(gateway, shop.sandbox["admin_key"]), account_of(gateway, shop.live["admin_key"])
    before = stored_rows(gateway, *accounts)
    for call in EVERY_CALL:
        body = valid_json(call).replace(b"http://", b"https://")
        for name, credentials in NO_KEY.items():
            sent = request("POST", SANDBOX + call, headers=credentials(shop), body=body)
            assert exchange(shop.origin, sent).status == 401, name
    for role, livemode, call, status in ROLES:
        if status >= 400:
            key = (shop.live if livemode else shop.sandbox)[f"{role}_key"]
            sent = request("POST", (LIVE if livemode else SANDBOX) + call, key=key, body=valid_json(call))
            assert exchange(shop.origin, sent).status == status
    assert stored_rows(gateway, *accounts) == before
