"""Signatures agree, to the byte, with the vectors of the contract and of Standard Webhooks."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import standardwebhooks

from zembil.webhooks import signature


@dataclass(frozen=True)
class Vector:
    secret: str
    event_id: str
    timestamp: int
    body: bytes
    contract: str
    standard: str


VECTORS = [
    Vector(
        "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    Vector(
        "whsec_" + "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "evt_0000000000000000000000000001",
        1700000000,
        b'{"id":"evt_0000000000000000000000000001","type":"payment.completed","created":1700000000,"livemode":false,'
        b'"data":{"object":{"id":"pay_1","amount":100.5,"currency":"ETB"}}}',
        "ffe27ecfb2b3b2f8bfedbf59efbeaf56f128de18168a6e774d2d632447037479",
        "v1,ndhOgYtsGbKcBrNRDwKo51sHQkGXSxKqJTyRVa7vs1g=",
    ),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.event_id)
def test_a_delivery_is_signed_as_the_vectors_say(vector: Vector) -> None:
    headers = signature.headers(
        vector.secret,
        vector.body,
        event_id=vector.event_id,
        timestamp=vector.timestamp,
        service_name="zembil",
        version="1.2.3",
    )
    assert headers == {
        "content-type": "application/json",
        "user-agent": "Zembil/1.2.3",
        "zembil-signature": f"t={vector.timestamp},v1={vector.contract}",
        "zembil-timestamp": str(vector.timestamp),
        "webhook-id": vector.event_id,
        "webhook-timestamp": str(vector.timestamp),
        "webhook-signature": vector.standard,
    }


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.event_id)
def test_the_library_of_standard_webhooks_makes_the_same_signature(vector: Vector) -> None:
    at = datetime.fromtimestamp(vector.timestamp, UTC)
    made = standardwebhooks.Webhook(vector.secret).sign(vector.event_id, at, vector.body.decode())
    assert made == vector.standard


def test_the_two_signatures_have_different_keys() -> None:
    # The whole secret as text for the one, its decoded part for the other: the likeliest mistake of a receiver.
    one, other = VECTORS
    changed = "whsec_" + other.secret.removeprefix("whsec_")[:-2] + "9="  # differs in bits that base64 throws away
    assert signature.standard_signature(
        changed, other.body, event_id=other.event_id, timestamp=other.timestamp
    ) == signature.standard_signature(other.secret, other.body, event_id=other.event_id, timestamp=other.timestamp)
    assert signature.contract_signature(changed, one.body, timestamp=1) != signature.contract_signature(
        other.secret, one.body, timestamp=1
    )


def test_time_and_id_are_in_the_replay_safe_signature_only() -> None:
    vector = VECTORS[0]
    standard = {
        signature.standard_signature(vector.secret, vector.body, event_id=event_id, timestamp=timestamp)
        for event_id in ("evt_1", "evt_2")
        for timestamp in (1, 2)
    }
    assert len(standard) == 4
    contract = {signature.contract_signature(vector.secret, vector.body, timestamp=t).split(",")[1] for t in (1, 2)}
    assert len(contract) == 1


def test_the_headers_carry_the_services_own_name() -> None:
    headers = signature.headers("whsec_AAAA", b"{}", event_id="evt_1", timestamp=1, service_name="my-shop", version="1")
    assert "my-shop-signature" in headers
    assert headers["user-agent"] == "My-Shop/1"


def test_during_a_rotation_the_contracts_header_stays_with_the_old_secret_and_the_other_names_both() -> None:
    old, new = VECTORS
    headers = signature.headers(
        old.secret,
        old.body,
        event_id=old.event_id,
        timestamp=old.timestamp,
        service_name="zembil",
        version="1",
        next_secret=new.secret,
    )
    assert headers["zembil-signature"] == f"t={old.timestamp},v1={old.contract}"
    contract_next = signature.contract_signature(new.secret, old.body, timestamp=old.timestamp)
    assert headers["zembil-signature-next"] == contract_next != headers["zembil-signature"]
    standard_next = signature.standard_signature(new.secret, old.body, event_id=old.event_id, timestamp=old.timestamp)
    assert headers["webhook-signature"] == f"{old.standard} {standard_next}"


def test_only_a_test_event_says_that_it_is_one() -> None:
    def made(*, is_test: bool) -> dict[str, str]:
        return signature.headers(
            "whsec_AAAA", b"{}", event_id="e", timestamp=1, service_name="my-shop", version="1", is_test=is_test
        )

    assert made(is_test=True) == made(is_test=False) | {"my-shop-test": "true"}
