"""API keys: made, rolled and revoked by admins, shown once, and whoever loses one loses it at once."""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from zembil import ids
from zembil.accounts.model import ApiKey, Role
from zembil.accounts.queries import find_api_key, insert_api_key, insert_user, revoke_api_key, update_key_expiry
from zembil.accounts.secrets import hashed, is_api_key, new_api_key
from zembil.db.pool import connected, transaction


def made(shop: Merchant, *, livemode: bool = False, **fields: Any) -> dict[str, Any]:
    answer = shop.client(livemode=livemode).post("/keys", json={"name": "Till", "role": "developer", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def status(shop: Merchant, key: str, *, livemode: bool = False) -> int:
    base = "/v1" if livemode else "/sandbox/v1"
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.get(f"{shop.origin}{base}/payments", headers=headers).status_code


def eventually(holds: Callable[[], bool], *, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_a(delta: timedelta) -> str:
    return (datetime.now(UTC) + delta).isoformat()


@pytest.mark.parametrize("livemode", [False, True])
def test_a_new_key_opens_its_account_with_its_role(merchant: Merchant, livemode: bool) -> None:
    key = made(merchant, livemode=livemode, role="read_only")
    assert is_api_key(key["key"])
    assert key["key"].startswith("sk_live_" if livemode else "sk_test_")
    assert key["id"].startswith("key_")
    assert (key["name"], key["role"], key["last_four"]) == ("Till", "read_only", key["key"][-4:])
    assert (key["expires_at"], key["last_used_at"], key["livemode"]) == (None, None, livemode)
    assert status(merchant, key["key"], livemode=livemode) == 200
    assert status(merchant, key["key"], livemode=not livemode) == 401
    base = "/v1" if livemode else "/sandbox/v1"
    headers = {"Authorization": f"Bearer {key['key']}"}
    refused = httpx2.post(f"{merchant.origin}{base}/payments", headers=headers, json={"amount": 1, "currency": "ETB"})
    assert refused.status_code == 403


def test_a_key_is_shown_once_and_stored_nowhere(gateway: Gateway, merchant: Merchant) -> None:
    client = merchant.client()
    repeatable = {"Idempotency-Key": "once"}
    body = {"name": "Till", "role": "developer"}
    first = client.post("/keys", json=body, headers=repeatable)
    key = first.json()["data"]["key"]
    again = client.post("/keys", json=body, headers=repeatable)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    listed = client.get("/keys")
    assert key not in listed.text
    assert "sk_" not in listed.text
    for table in ("api_keys", "idempotency_keys"):
        rows = query(gateway, f"SELECT t::text AS row FROM {table} t")  # noqa: S608  (our own tables)
        assert not any(key in row["row"] or key.encode().hex() in row["row"] for row in rows)
    assert key not in gateway.log.read_text(errors="replace")


def test_a_replay_of_a_secret_is_for_admins_only(merchant: Merchant) -> None:
    repeatable = {"Idempotency-Key": "once"}
    body = {"name": "Till", "role": "developer"}
    assert merchant.client().post("/keys", json=body, headers=repeatable).status_code == 201
    answer = merchant.client(role="developer").post("/keys", json=body, headers=repeatable)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")


def colleague(gateway: Gateway, merchant: Merchant) -> httpx2.Client:
    """Another admin of the merchant's sandbox."""
    at, secret = datetime.now(UTC), new_api_key(livemode=False)
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    found = "SELECT merchant_id FROM accounts WHERE id = $1"
    merchant_id: uuid.UUID = query(gateway, found, account_id)[0]["merchant_id"]
    user_id = ids.new_id(at)
    key = ApiKey(
        account_id=account_id,
        id=ids.new_id(at),
        user_id=user_id,
        name="Almaz's key",
        role=Role.ADMIN,
        last_four=secret[-4:],
    )

    async def hire() -> None:
        async with connected(gateway.database_url, connections_max=1) as db, transaction(db) as conn:
            await insert_user(conn, user_id, merchant_id, name="Almaz", role=Role.ADMIN)
            await insert_api_key(conn, key, secret_hash=hashed(secret))

    asyncio.run(hire())
    return replace(merchant, sandbox={"admin_key": secret}).client()


def test_nobody_gets_a_key_in_another_persons_name_by_repeating_their_request(
    gateway: Gateway, merchant: Merchant
) -> None:
    api, almaz = merchant.client(), colleague(gateway, merchant)
    repeatable = {"Idempotency-Key": "new-till-key"}
    body = {"name": "Till", "role": "admin"}
    first = api.post("/keys", json=body, headers=repeatable)
    assert first.status_code == 201
    refused = almaz.post("/keys", json=body, headers=repeatable)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert api.post("/keys", json=body, headers=repeatable).content == first.content
    repeatable = {"Idempotency-Key": "roll-till-key"}
    path = f"/keys/{first.json()['data']['id']}/roll"
    rolled = almaz.post(path, headers=repeatable)
    assert rolled.status_code == 201
    refused = api.post(path, headers=repeatable)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert almaz.post(path, headers=repeatable).content == rolled.content


def test_keys_are_listed_newest_first(merchant: Merchant) -> None:
    client = merchant.client()
    newest = made(merchant, name="Newest")
    page = client.get("/keys", params={"limit": 3}).json()["data"]
    assert page["keys"][0] == {name: value for name, value in newest.items() if name != "key"}
    assert (page["pagination"]["total"], len(page["keys"])) == (4, 3)
    rest = client.get("/keys", params={"limit": 3, "cursor": page["pagination"]["next_cursor"]}).json()["data"]
    assert sorted(key["name"] for key in page["keys"] + rest["keys"]) == [
        *("First admin key", "First developer key", "First read-only key", "Newest"),
    ]


def test_a_key_belongs_to_whoever_made_it(merchant: Merchant) -> None:
    keys = merchant.client().get("/keys").json()["data"]["keys"]
    admin = next(key for key in keys if key["role"] == "admin")
    assert made(merchant)["user_id"] == admin["user_id"]
    developer = next(key for key in keys if key["role"] == "developer")
    assert developer["user_id"] != admin["user_id"]
    rolled = merchant.client().post(f"/keys/{developer['id']}/roll").json()["data"]
    assert rolled["user_id"] == admin["user_id"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"role": "owner"}, "role"),
        ({"role": None}, "role"),
        ({"expires_at": "2020-01-01"}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": 5}, "expires_at"),
        ({"rate_limit": 0}, "rate_limit"),
    ],
)
def test_a_fault_is_named(merchant: Merchant, change: dict[str, Any], field: str) -> None:
    answer = merchant.client().post("/keys", json={"name": "Till", "role": "admin", **change})
    assert answer.status_code == 400
    assert [fault["field"] for fault in answer.json()["error"]["details"]] == [field]


def test_a_key_ends_when_it_was_to_end(merchant: Merchant) -> None:
    key = made(merchant, expires_at=in_a(timedelta(seconds=1)))
    assert status(merchant, key["key"]) == 200
    time.sleep(1.05)
    assert status(merchant, key["key"]) == 401


def test_a_revoked_key_opens_nothing_from_that_answer_on(merchant: Merchant) -> None:
    key = made(merchant)
    assert status(merchant, key["key"]) == 200
    answer = merchant.client().delete(f"/keys/{key['id']}")
    assert (answer.status_code, answer.json()["data"]) == (200, {"id": key["id"], "deleted": True})
    assert status(merchant, key["key"]) == 401
    assert merchant.client().delete(f"/keys/{key['id']}").status_code == 404
    assert key["id"] not in merchant.client().get("/keys").text


def test_the_last_admin_key_stays(merchant: Merchant) -> None:
    client = merchant.client()
    first = next(key for key in client.get("/keys").json()["data"]["keys"] if key["role"] == "admin")
    made(merchant, role="admin", expires_at=in_a(timedelta(seconds=2)))
    time.sleep(2.05)
    answer = client.delete(f"/keys/{first['id']}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "invalid_state")
    made(merchant, role="admin")
    assert client.delete(f"/keys/{first['id']}").status_code == 200
    assert client.get("/keys").status_code == 401


def test_a_rolled_key_and_its_successor_overlap(merchant: Merchant) -> None:
    old = made(merchant, rate_limit=77)
    answer = merchant.client().post(f"/keys/{old['id']}/roll", json={"overlap_seconds": 1})
    assert answer.status_code == 201
    new = answer.json()["data"]
    assert (new["name"], new["role"], new["rate_limit"], new["expires_at"]) == ("Till", "developer", 77, None)
    assert new["replaces"]["id"] == old["id"]
    assert (status(merchant, old["key"]), status(merchant, new["key"])) == (200, 200)
    time.sleep(1.05)
    assert (status(merchant, old["key"]), status(merchant, new["key"])) == (401, 200)
    again = merchant.client().post(f"/keys/{old['id']}/roll")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "invalid_state")


def test_a_leaked_key_is_rolled_without_overlap(merchant: Merchant) -> None:
    admin = next(key for key in merchant.client().get("/keys").json()["data"]["keys"] if key["role"] == "admin")
    new = merchant.client().post(f"/keys/{admin['id']}/roll", json={"overlap_seconds": 0}).json()["data"]
    assert status(merchant, merchant.sandbox["admin_key"]) == 401
    assert status(merchant, new["key"]) == 200


def test_a_rolled_key_keeps_the_overlap_of_a_day_and_never_longer_than_it_had(merchant: Merchant) -> None:
    client = merchant.client()
    endless, ending = made(merchant), made(merchant, expires_at=in_a(timedelta(hours=1)))
    day = client.post(f"/keys/{endless['id']}/roll").json()["data"]["replaces"]["expires_at"]
    assert timedelta(hours=23) < datetime.fromisoformat(day) - datetime.now(UTC) <= timedelta(hours=24)
    rolled = client.post(f"/keys/{ending['id']}/roll").json()["data"]
    assert rolled["replaces"]["expires_at"] == rolled["expires_at"] == ending["expires_at"]


def test_a_rolled_key_finds_what_the_old_one_began(merchant: Merchant) -> None:
    client = merchant.client()
    repeatable = {"Idempotency-Key": "order-1"}
    body = {"amount": 5, "currency": "ETB"}
    first = client.post("/payments", json=body, headers=repeatable)
    admin = next(key for key in client.get("/keys").json()["data"]["keys"] if key["role"] == "admin")
    new = client.post(f"/keys/{admin['id']}/roll", json={"overlap_seconds": 0}).json()["data"]["key"]
    headers = {"Authorization": f"Bearer {new}", **repeatable}
    again = httpx2.post(f"{merchant.origin}/sandbox/v1/payments", json=body, headers=headers)
    assert again.json()["data"]["id"] == first.json()["data"]["id"]


@pytest.mark.parametrize("overlap", [-1, 604_801, 1.5, "60"])
def test_an_overlap_that_is_none_is_refused(merchant: Merchant, overlap: Any) -> None:
    key = made(merchant)
    answer = merchant.client().post(f"/keys/{key['id']}/roll", json={"overlap_seconds": overlap})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["field"] == "overlap_seconds"


def test_the_last_use_is_recorded_to_the_minute(gateway: Gateway, merchant: Merchant) -> None:
    key = made(merchant)

    def last_used_at() -> str | None:
        keys = merchant.client().get("/keys").json()["data"]["keys"]
        return next(found["last_used_at"] for found in keys if found["id"] == key["id"])

    assert last_used_at() is None
    assert status(merchant, key["key"]) == 200
    eventually(lambda: last_used_at() is not None)
    recorded = last_used_at()
    time.sleep(1.05)  # longer than a key is remembered: it is looked up again
    assert status(merchant, key["key"]) == 200
    time.sleep(0.2)
    assert last_used_at() == recorded
    earlier = "UPDATE api_keys SET last_used_at = now() - interval '61 seconds' WHERE secret_hash = $1"
    query(gateway, earlier, hashed(key["key"]))
    time.sleep(1.05)
    assert status(merchant, key["key"]) == 200
    eventually(lambda: (last_used_at() or "") > str(recorded))


def test_keys_are_for_admins_and_for_their_own_account(gateway: Gateway, merchant: Merchant) -> None:
    key = made(merchant)
    calls = [("GET", "/keys"), ("POST", "/keys"), ("POST", f"/keys/{key['id']}/roll"), ("DELETE", f"/keys/{key['id']}")]
    for role in ("developer", "read_only"):
        for method, path in calls:
            assert merchant.client(role=role).request(method, path).status_code == 403
    stranger = gateway.new_merchant()
    for client in (stranger.client(), merchant.client(livemode=True)):
        for method, path in calls[2:]:
            assert client.request(method, path).status_code == 404
    stranger.close()
    assert status(merchant, key["key"]) == 200
    for path in ("/keys/x", "/keys/key_00000000000000000000000000"):
        assert merchant.client().delete(path).status_code == 404


def test_a_key_is_ended_in_its_own_account_only(gateway: Gateway, merchant: Merchant) -> None:
    key_id = ids.parsed(ids.Prefix.KEY, made(merchant)["id"])
    assert key_id is not None
    here, there = (account_of(gateway, keys["admin_key"]) for keys in (merchant.sandbox, merchant.live))

    async def end_from_there() -> tuple[ApiKey | None, ApiKey | None]:
        async with connected(gateway.database_url, connections_max=1) as db, transaction(db) as conn:
            before = await find_api_key(conn, here, key_id)
            assert before is not None
            await update_key_expiry(conn, replace(before, account_id=there, expires_at=datetime.now(UTC)))
            await revoke_api_key(conn, there, key_id)
            return before, await find_api_key(conn, here, key_id)

    before, after = asyncio.run(end_from_there())
    assert before == after
