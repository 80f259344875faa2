"""Rate limits, as merchants meet them: what every answer tells, and what is refused."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from tests.support.database import query
from tests.support.gateway import Gateway, Merchant
from tests.support.serving import serving
from zembil.accounts.secrets import hashed, new_api_key

STATE = re.compile(r'"(\w+)";r=(\d+);t=(\d+)')


def told(answer: Any) -> dict[str, int]:
    return {name: int(answer.headers[f"x-ratelimit-{name}"]) for name in ("limit", "remaining", "reset")}


def test_every_authenticated_answer_tells_what_is_left(merchant: Merchant) -> None:
    client = merchant.client()
    answers = [
        client.get("/payments"),
        client.post("/payments", json={"amount": 1, "currency": "ETB"}),
        client.post("/payments", json={}),
        client.get("/payments/pay_00000000000000000000000000"),
        client.get("/nowhere"),
        client.delete("/payments"),
        client.post("/payments", content=b"x", headers={"Content-Type": "text/plain"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 201, 400, 404, 404, 405, 415]
    assert [told(answer)["remaining"] for answer in answers] == list(range(999, 992, -1))
    for answer in answers:
        assert answer.headers["ratelimit-policy"] == '"account";q=1000;w=60'
        state = STATE.fullmatch(answer.headers["ratelimit"])
        assert state is not None
        assert state[1] == "account"
        assert {"limit": 1000, "remaining": int(state[2]), "reset": int(state[3])} == told(answer)
        assert 1 <= told(answer)["reset"] <= 60


def test_a_live_account_has_a_limit_of_its_own(merchant: Merchant) -> None:
    assert told(merchant.client().get("/payments"))["remaining"] == 999
    answer = merchant.client(livemode=True).get("/payments")
    assert (told(answer)["limit"], told(answer)["remaining"]) == (5000, 4999)


def test_all_keys_of_an_account_share_its_limit(merchant: Merchant) -> None:
    clients = [merchant.client(role=role) for role in ("admin", "developer", "read_only")]
    assert [told(client.get("/payments"))["remaining"] for client in clients] == [999, 998, 997]


def test_a_request_over_the_limit_is_told_when_to_come_back(gateway: Gateway, merchant: Merchant) -> None:
    limit = "UPDATE api_keys SET rate_limit = 5 WHERE secret_hash = $1"
    query(gateway, limit, hashed(merchant.sandbox["developer_key"]))
    client = merchant.client(role="developer")
    answers = [client.post("/payments", json={"amount": 1, "currency": "ETB"}) for _ in range(8)]
    assert [answer.status_code for answer in answers] == [201] * 5 + [429] * 3
    assert [told(answer)["remaining"] for answer in answers] == [4, 3, 2, 1, 0, 0, 0, 0]
    refused = answers[-1]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 55 <= int(refused.headers["retry-after"]) <= 61
    assert int(refused.headers["retry-after"]) >= told(refused)["reset"]
    assert refused.headers["ratelimit-policy"] == '"key";q=5;w=60, "account";q=1000;w=60'
    assert [state[:2] for state in STATE.findall(refused.headers["ratelimit"])] == [("key", "0"), ("account", "995")]
    assert merchant.client().get("/payments").json()["data"]["pagination"]["total"] == 5
    assert refused.headers["zembil-request-id"]


def test_a_refused_request_is_refused_whatever_it_asks(gateway: Gateway, merchant: Merchant) -> None:
    limit = "UPDATE api_keys SET rate_limit = 1 WHERE secret_hash = $1"
    query(gateway, limit, hashed(merchant.sandbox["read_only_key"]))
    client = merchant.client(role="read_only")
    assert client.get("/payments").status_code == 200
    answers = [client.get("/nowhere"), client.delete("/payments"), client.post("/payments", json={})]
    assert [answer.status_code for answer in answers] == [429] * 3


def test_a_burst_up_to_the_limit_is_answered_and_not_one_more(merchant: Merchant) -> None:
    clients = [merchant.client() for _ in range(8)]

    def status(number: int) -> int:
        return clients[number % len(clients)].get("/payments/x").status_code

    began = time.monotonic()
    with ThreadPoolExecutor(len(clients)) as pool:
        statuses = list(pool.map(status, range(1100)))
    assert time.monotonic() - began < 55
    assert statuses.count(404) == 1000
    assert statuses.count(429) == 100


def test_processes_of_one_deployment_keep_one_limit(gateway: Gateway, merchant: Merchant, tmp_path: Path) -> None:
    limit = {"ZEMBIL_RATE_LIMIT_SANDBOX": "40"}
    with (
        serving(gateway.database_url, tmp_path / "one.log", **limit) as one,
        serving(gateway.database_url, tmp_path / "two.log", **limit) as two,
    ):
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        statuses = [
            httpx2.get(f"{origin}/sandbox/v1/payments", headers=headers).status_code
            for _ in range(60)
            for origin in (one, two)
        ]
    assert statuses.count(200) + statuses.count(429) == 120
    assert 30 <= statuses.count(200) <= 40


def test_without_limits_nothing_is_said_of_them(gateway: Gateway, merchant: Merchant, tmp_path: Path) -> None:
    none = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0", "ZEMBIL_RATE_LIMIT_LIVE": "0"}
    with serving(gateway.database_url, tmp_path / "log", **none) as origin:
        for base, keys in (("sandbox/v1", merchant.sandbox), ("v1", merchant.live)):
            headers = {"Authorization": f"Bearer {keys['admin_key']}"}
            answer = httpx2.get(f"{origin}/{base}/payments", headers=headers)
            assert answer.status_code == 200
            assert not any("ratelimit" in name.lower() for name in answer.headers)


def failed(origin: str, **headers: str) -> Any:
    key = new_api_key(livemode=False)
    return httpx2.get(f"{origin}/sandbox/v1/payments", headers={"Authorization": f"Bearer {key}", **headers})


def test_guessing_keys_ends_after_sixty_and_a_valid_key_is_answered_all_the_same(
    gateway: Gateway, merchant: Merchant, tmp_path: Path
) -> None:
    with serving(gateway.database_url, tmp_path / "log") as origin:
        assert [failed(origin).status_code for _ in range(61)] == [401] * 60 + [429]
        refused = failed(origin)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert not any("ratelimit" in name.lower() for name in refused.headers)
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        assert httpx2.get(f"{origin}/sandbox/v1/payments", headers=headers).status_code == 200
        # Nobody asked us to believe this header.
        assert failed(origin, **{"X-Forwarded-For": "203.0.113.9"}).status_code == 429


def test_behind_a_trusted_proxy_each_address_is_counted_by_itself(gateway: Gateway, tmp_path: Path) -> None:
    behind = {"ZEMBIL_TRUSTED_PROXIES": "127.0.0.0/8,10.0.0.0/8", "ZEMBIL_RATE_LIMIT_FAILED_AUTHENTICATION": "3"}

    def statuses(forwarded: str, count: int) -> list[int]:
        return [failed(origin, **{"X-Forwarded-For": forwarded}).status_code for _ in range(count)]

    with serving(gateway.database_url, tmp_path / "log", **behind) as origin:
        assert statuses("203.0.113.9", 4) == [401, 401, 401, 429]
        assert statuses("203.0.113.10, 10.0.0.7", 4) == [401, 401, 401, 429]
        # What a client claims before our own proxies speak is nothing.
        assert statuses("198.51.100.1, 203.0.113.9", 1) == [429]
        # A whole /64 is one customer's.
        assert statuses("2001:db8::1", 2) + statuses("2001:db8::2", 2) == [401, 401, 401, 429]


def test_a_forwarded_address_that_is_none_breaks_nothing(gateway: Gateway, tmp_path: Path) -> None:
    with serving(gateway.database_url, tmp_path / "log", ZEMBIL_TRUSTED_PROXIES="127.0.0.1") as origin:
        for forwarded in ("", ",", "unknown", "203.0.113.9:80", "x" * 2000):
            assert failed(origin, **{"X-Forwarded-For": forwarded}).status_code == 401
