"""Answers are as the reference describes them: their status, their code, every field and no other."""

from typing import Any

import pytest

from tests.acceptance.test_dev import eventually
from tests.support import money
from tests.support.gateway import Gateway, Merchant
from tests.support.reference import Document, demand_as_described, document_of
from tests.support.schemas import faults
from zembil.webhooks.model import EventType


class Reader:
    """A client that holds every answer against the reference."""

    def __init__(self, document: Document, merchant: Merchant) -> None:
        self._document = document
        self._api = merchant.client()

    def asks(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = self._api.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        demand_as_described(self._document, method, path.partition("?")[0], status, answer.json())
        return answer.json().get("data")


@pytest.fixture
def document(gateway: Gateway) -> Document:
    return document_of(gateway.origin)


@pytest.fixture
def reader(document: Document, merchant: Merchant) -> Reader:
    return Reader(document, merchant)


def test_payments_and_refunds_are_as_described(reader: Reader, merchant: Merchant) -> None:
    more = {"description": "Coffee", "reference": "A-1", "metadata": {"till": "2"}}
    reader.asks("POST", "/payments", {"amount": 100, "currency": "ETB", **more}, status=201)
    plain = reader.asks("POST", "/payments", {"amount": 1, "currency": "ETB"}, status=201)
    reader.asks("POST", "/payments", {"amount": "1"}, status=400)
    reader.asks("POST", "/payments", {"amount": 100, "currency": "ETB", "reference": "A-1"}, status=409)
    charge = {"phone": "+251911223344", "mobile_money_provider": "telebirr"}
    reader.asks("POST", f"/payments/{plain['id']}/charge", charge)
    reader.asks("POST", f"/payments/{plain['id']}/cancel")
    reader.asks("GET", f"/payments/{plain['id']}")
    poor = reader.asks("POST", "/payments", {"amount": 1, "currency": "ETB"}, status=201)
    reader.asks("POST", f"/payments/{poor['id']}/charge", charge | {"phone": "+251900000001"}, status=422)
    reader.asks("POST", f"/test/payments/{poor['id']}/fail", {"failure_code": "timeout"})
    payment = money.paid(merchant.client())
    reader.asks("GET", f"/payments/{payment['id']}")
    reader.asks("GET", "/payments?limit=2")
    approved = reader.asks("POST", "/refunds", {"payment_id": payment["id"], "amount": 10}, status=201)
    reader.asks("POST", f"/refunds/{approved['id']}/approve")
    refund = reader.asks("POST", "/refunds", {"payment_id": payment["id"], "amount": 10}, status=201)
    reader.asks("POST", "/refunds", {"payment_id": payment["id"], "amount": 1000}, status=422)
    reader.asks("POST", f"/refunds/{refund['id']}/reject", {"reason": "No"})
    reader.asks("POST", f"/refunds/{refund['id']}/approve", status=409)
    reader.asks("GET", f"/refunds/{refund['id']}")
    for path in ("/refunds", "/balance", "/ledger/entries", "/charges"):
        reader.asks("GET", path)


def test_charges_in_doubt_are_as_described(reader: Reader) -> None:
    doubtful = {"phone": "+251900000005", "mobile_money_provider": "telebirr"}
    for number in range(2):
        payment = reader.asks("POST", "/payments", {"amount": 1, "currency": "ETB"}, status=201)
        charge = reader.asks("POST", f"/payments/{payment['id']}/charge", doubtful)["charge"]
        assert [one["id"] for one in reader.asks("GET", "/charges?state=in_doubt")["charges"]] == [charge["id"]]
        if number:
            reader.asks("POST", f"/test/charges/{charge['id']}/resolve", {"outcome": "succeeded"})
        else:
            assert reader.asks("POST", f"/charges/{charge['id']}/ask")["payment_status"] == "completed"


def test_customers_and_keys_are_as_described(reader: Reader) -> None:
    customer = reader.asks("POST", "/customers", {"email": "a@example.com", "external_id": "7"}, status=201)
    reader.asks("POST", "/customers", {}, status=400)
    reader.asks("PATCH", f"/customers/{customer['id']}", {"name": "Abebe", "metadata": {"k": "v"}})
    reader.asks("GET", f"/customers/{customer['id']}")
    reader.asks("GET", "/customers")
    reader.asks("DELETE", f"/customers/{customer['id']}")
    reader.asks("GET", f"/customers/{customer['id']}", status=404)
    key = reader.asks("POST", "/keys", {"name": "Till", "role": "developer", "rate_limit": 5}, status=201)
    rolled = reader.asks("POST", f"/keys/{key['id']}/roll", status=201)
    reader.asks("GET", "/keys")
    reader.asks("DELETE", f"/keys/{rolled['id']}")


def test_webhooks_and_deliveries_are_as_described(reader: Reader) -> None:
    asked = {"url": "http://127.0.0.1:9/hooks", "events": ["*"]}
    path = f"/webhooks/{reader.asks('POST', '/webhooks', asked, status=201)['id']}"
    reader.asks("POST", f"{path}/rotate-secret")
    reader.asks("GET", path)
    delivery = reader.asks("POST", f"{path}/test", {"type": "refund.failed"}, status=201)
    read = f"/deliveries/{delivery['id']}"
    assert eventually(lambda: bool(reader.asks("GET", read)["attempts"]), seconds=10)
    reader.asks("POST", f"{path}/recover", {"since": "2026-01-01", "dry_run": True})
    reader.asks("POST", f"{read}/redeliver", status=201)
    reader.asks("GET", f"{path}/deliveries")
    reader.asks("GET", "/webhooks")
    reader.asks("PATCH", path, {"status": "disabled"})
    reader.asks("POST", f"{read}/redeliver", status=409)
    reader.asks("DELETE", path)


def test_every_event_is_as_described(document: Document, reader: Reader) -> None:
    for event_type in EventType:
        event = reader.asks("POST", "/test/events", {"type": event_type.value}, status=201)
        described = document["webhooks"][event_type.value]["post"]["requestBody"]["content"]["application/json"]
        assert list(faults(document, described["schema"], event)) == []
    reader.asks("GET", "/events?order=asc&limit=100")
    reader.asks("GET", "/test/clock")
    reader.asks("POST", "/test/clock", {"advance_seconds": 60})
