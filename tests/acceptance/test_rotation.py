"""Rotation of a signing secret: nobody who verifies with a secret that counts sees a failure, and none counts after."""

import base64
import time
from datetime import datetime
from typing import Any

import httpx2
import pytest
import standardwebhooks
from cryptography.exceptions import InvalidTag

from tests.acceptance.test_deliveries import create, register, waiting
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import is_a_standard_webhook, is_signed_as_the_contract_says
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Received, Receiver
from tests.support.verifiers import EXAMPLE_VERIFIERS, LIBRARIES, Case
from zembil.accounts import secrets
from zembil.webhooks.operations import secret_binding

DAY = 86_400


def rotate(api: httpx2.Client, endpoint: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = api.post(f"/webhooks/{endpoint['id']}/rotate-secret", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def instant(shown: str) -> float:
    return datetime.fromisoformat(shown).timestamp()


def next_received(api: httpx2.Client, receiver: Receiver) -> Received:
    """An event that is told now."""
    count = len(receiver.received)
    create(api)
    return receiver.wait_for(count + 1)[-1]


def is_signed_for_next(received: Received, secret: str) -> bool:
    """Whether the header beside the contract's is what the contract's would be with this secret."""
    headers = received.headers | {"zembil-signature": received.headers["zembil-signature-next"]}
    return is_signed_as_the_contract_says(Received(received.at, headers, received.body), secret)


def demand_both(received: Received, old: str, new: str) -> None:
    """Signed as during an overlap."""
    assert is_signed_as_the_contract_says(received, old)
    assert received.headers["zembil-signature"].count("v1=") == 1
    assert is_signed_for_next(received, new)
    assert received.headers["webhook-signature"].count("v1,") == 2
    assert is_a_standard_webhook(received, old)
    assert is_a_standard_webhook(received, new)


def demand_only(received: Received, secret: str, *former: str) -> None:
    """Signed as outside an overlap, and with none of the former secrets."""
    assert is_signed_as_the_contract_says(received, secret)
    assert "zembil-signature-next" not in received.headers
    assert received.headers["webhook-signature"].count("v1,") == 1
    assert is_a_standard_webhook(received, secret)
    for other in former:
        assert not is_signed_as_the_contract_says(received, other)
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            is_a_standard_webhook(received, other)


def who_verifies_sees(
    told: list[Received],
    old: str,
    new: str,
    *,
    contract: tuple[bool, bool],
    standard: tuple[bool, bool] = (True, True),
) -> None:
    """Who knows the old secret and who knows the new one: whether either signature is right to them, in all of these.

    The contract's receiver looks at the contract's header and at nothing else. The code that we publish looks at the
    header of the next secret too, so that it may know either.
    """
    for secret, contract_is_right, standard_is_right in zip((old, new), contract, standard, strict=True):
        assert {is_signed_as_the_contract_says(received, secret) for received in told} == {contract_is_right}
        cases = [Case(secret, received.headers, received.body.decode()) for received in told]
        for library in LIBRARIES:
            assert {verdict.webhook_signature for verdict in library(cases)} == {standard_is_right}
        for example in EXAMPLE_VERIFIERS:
            verdicts = example(cases)
            assert {verdict.webhook_signature for verdict in verdicts} == {standard_is_right}
            assert {verdict.zembil_signature for verdict in verdicts} == {standard_is_right}


def test_receivers_see_no_failure_while_a_secret_is_rotated_with_an_overlap(
    merchant: Merchant, receiver: Receiver
) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    old = endpoint["secret"]
    demand_only(next_received(api, receiver), old)
    rotated = rotate(api, endpoint, overlap_seconds=3)
    new = rotated["secret"]
    assert new.startswith("whsec_")
    assert new != old
    switch = instant(rotated["rotates_at"])
    assert 1 < switch - time.time() <= 3.5
    assert rotated == endpoint | {"secret": new, "rotates_at": rotated["rotates_at"]}
    while time.time() < switch + 1.5:
        create(api)
        time.sleep(0.1)
    time.sleep(0.5)
    told = receiver.received[1:]
    during = [received for received in told if "zembil-signature-next" in received.headers]
    after = [received for received in told if "zembil-signature-next" not in received.headers]
    assert during
    assert after
    who_verifies_sees(during, old, new, contract=(True, False))
    who_verifies_sees(after, old, new, contract=(False, True), standard=(False, True))
    for received in during:
        assert int(received.headers["zembil-timestamp"]) <= switch
        demand_both(received, old, new)
    for received in after:
        assert int(received.headers["zembil-timestamp"]) >= int(switch)
        demand_only(received, new, old)
    shown = api.get(f"/webhooks/{endpoint['id']}").json()["data"]
    assert "rotates_at" not in shown
    # The next rotation starts from the secret that signs now.
    third = rotate(api, endpoint, overlap_seconds=600)["secret"]
    demand_both(next_received(api, receiver), new, third)


def test_a_sandbox_clock_does_not_move_the_switch(merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    rotated = rotate(api, endpoint)
    assert DAY - 60 < instant(rotated["rotates_at"]) - time.time() <= DAY + 1
    assert api.post("/test/clock", json={"advance_seconds": 2 * DAY}).status_code == 200
    demand_both(next_received(api, receiver), endpoint["secret"], rotated["secret"])
    assert api.get(f"/webhooks/{endpoint['id']}").json()["data"]["rotates_at"] == rotated["rotates_at"]


def test_without_an_overlap_the_new_secret_signs_at_once(merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    rotated = rotate(api, endpoint, overlap_seconds=0)
    assert rotated == endpoint | {"secret": rotated["secret"]}
    demand_only(next_received(api, receiver), rotated["secret"], endpoint["secret"])


def test_a_second_rotation_waits_for_the_first_unless_it_switches_at_once(
    gateway: Gateway, merchant: Merchant, receiver: Receiver
) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    path = f"/webhooks/{endpoint['id']}/rotate-secret"
    second = rotate(api, endpoint, overlap_seconds=600)["secret"]
    for body in ({}, {"overlap_seconds": 1}, {"overlap_seconds": 604_800}):
        refused = api.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "invalid_state")
    demand_both(next_received(api, receiver), endpoint["secret"], second)
    third = rotate(api, endpoint, overlap_seconds=0)["secret"]
    demand_only(next_received(api, receiver), third, second, endpoint["secret"])
    (row,) = query(
        gateway,
        "SELECT sealed_secret, sealed_next_secret FROM webhook_endpoints WHERE account_id = $1",
        account_of(gateway, merchant.sandbox["admin_key"]),
    )
    assert row["sealed_next_secret"] is None
    assert third.encode() not in row["sealed_secret"]


def test_a_rotation_is_repeated_with_its_key_and_its_answer_is_stored_sealed(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    endpoint = register(api, "http://shop.example.et/hooks")
    path, key = f"/webhooks/{endpoint['id']}/rotate-secret", {"Idempotency-Key": "rotate-1"}
    first, again = api.post(path, headers=key), api.post(path, headers=key)
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert again.headers["idempotent-replayed"] == "true"
    rows = query(
        gateway,
        "SELECT answer, is_sealed FROM idempotency_keys WHERE account_id = $1",
        account_of(gateway, merchant.sandbox["admin_key"]),
    )
    assert [row["is_sealed"] for row in rows] == [True]
    assert b"whsec_" not in rows[0]["answer"]
    assert merchant.client(role="read_only").post(path, headers=key).status_code == 403


def test_a_secret_is_stored_sealed_and_opens_in_its_own_row_alone(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    endpoints = [register(api, "http://shop.example.et/hooks") for _ in range(2)]
    rotated = rotate(api, endpoints[0], overlap_seconds=600)
    account = account_of(gateway, merchant.sandbox["admin_key"])
    rows = query(gateway, "SELECT * FROM webhook_endpoints WHERE account_id = $1 ORDER BY id", account)
    told = [endpoints[0]["secret"], rotated["secret"], endpoints[1]["secret"]]
    sealed: list[bytes] = [rows[0]["sealed_secret"], rows[0]["sealed_next_secret"], rows[1]["sealed_secret"]]
    key = base64.b64decode((gateway.data / "secret.key").read_text())
    one, other = (secret_binding(account, row["id"]) for row in rows)
    assert [secrets.unseal(key, sealed[n], bound_to=to) for n, to in ((0, one), (1, one), (2, other))] == told
    for number, wrong in ((0, other), (1, other), (2, one), (0, secret_binding(account + 1, rows[0]["id"]))):
        with pytest.raises(InvalidTag):
            secrets.unseal(key, sealed[number], bound_to=wrong)
    for row in rows:  # and it stands nowhere else, neither as text nor as the bytes that it is made of
        stored = repr(dict(row))
        assert "whsec_" not in stored
        assert not any(base64.b64decode(secret.removeprefix("whsec_")) in one for secret in told for one in sealed)


def test_a_secret_moved_to_another_row_signs_nothing(gateway: Gateway, merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    register(api, receiver.url)
    foreign = register(api, "http://127.0.0.1:9/", "payment.completed")
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(
        gateway,
        """
        UPDATE webhook_endpoints e SET sealed_secret = f.sealed_secret FROM webhook_endpoints f
        WHERE e.account_id = $1 AND f.account_id = $1 AND e.url = $2 AND f.url = $3
        """,
        account,
        receiver.url,
        foreign["url"],
    )
    create(api)
    assert eventually(lambda: [row["attempts_made"] for row in waiting(gateway, merchant)] == [1])
    time.sleep(0.5)
    assert receiver.received == []


@pytest.mark.parametrize("seconds", [-1, 604_801, 1.5, "60", True])
def test_an_overlap_is_whole_seconds_up_to_a_week(shop: Merchant, seconds: Any) -> None:
    api = shop.client()
    endpoint = register(api, "http://shop.example.et/hooks")
    answer = api.post(f"/webhooks/{endpoint['id']}/rotate-secret", json={"overlap_seconds": seconds})
    assert answer.status_code == 400
    assert [fault["field"] for fault in answer.json()["error"]["details"]] == ["overlap_seconds"]
    api.delete(f"/webhooks/{endpoint['id']}")
