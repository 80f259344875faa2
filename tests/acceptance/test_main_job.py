"""The main job, end to end over HTTP: a merchant creates a payment, a person pays it, a signed event arrives."""

import hashlib
import hmac
from datetime import UTC, datetime

import httpx2
import pytest
import standardwebhooks

from tests.support.gateway import Merchant
from tests.support.receiver import Received, Receiver


def is_signed_as_the_contract_says(received: Received, secret: str) -> bool:
    timestamp = received.headers["zembil-timestamp"]
    digest = hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(received.headers["zembil-signature"], f"t={timestamp},v1={digest}")


def is_a_standard_webhook(received: Received, secret: str) -> bool:
    """Signed as the library signs; it verifies only what came within five minutes, and a suite may take longer."""
    sent_at = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
    signed = standardwebhooks.Webhook(secret).sign(received.headers["webhook-id"], sent_at, received.body.decode())
    if signed not in received.headers["webhook-signature"].split(" "):
        raise standardwebhooks.WebhookVerificationError("No signature is the library's")
    return True


def test_a_payment_is_created_paid_on_the_page_and_told_by_a_signed_event(
    merchant: Merchant, receiver: Receiver
) -> None:
    api = merchant.client()
    endpoint = api.post("/webhooks", json={"url": receiver.url, "events": ["*"]}).json()["data"]
    created = api.post(
        "/payments",
        json={
            "amount": 1500.00,
            "currency": "ETB",
            "customer": {"email": "abebe@example.com", "phone": "+251911223344", "name": "Abebe"},
            "description": "Two bags of coffee",
            "callback_url": "https://shop.example.et/thanks?order=7",
            "metadata": {"order": "7"},
        },
    )
    assert created.status_code == 201
    payment = created.json()["data"]
    assert payment["status"] == "pending"

    with httpx2.Client(timeout=30) as phone:
        page = phone.get(payment["payment_link"])
        assert page.status_code == 200
        assert "1,500.00" in page.text
        form = {"form_token": token_of(page.text), "mobile_money_provider": "telebirr", "phone": "0911223344"}
        sent = phone.post(f"{payment['payment_link']}/charge", data=form)
        assert sent.status_code == 303
        waiting = phone.get(payment["payment_link"])
        answer = {"form_token": token_of(waiting.text), "answer": "approve"}
        assert phone.post(f"{payment['payment_link']}/handset", data=answer).status_code == 303

    told = receiver.wait_for(4)
    by_sequence = sorted(told, key=lambda received: received.event["sequence"])
    assert [received.event["type"] for received in by_sequence] == [
        "payment.created",
        "payment.pending",
        "payment.processing",
        "payment.completed",
    ]
    completed = by_sequence[-1]
    assert is_signed_as_the_contract_says(completed, endpoint["secret"])
    assert is_a_standard_webhook(completed, endpoint["secret"])
    assert completed.event["data"]["object"] == api.get(f"/payments/{payment['id']}").json()["data"]
    assert completed.event["data"]["object"]["status"] == "completed"

    page = httpx2.get(payment["payment_link"])
    assert f"order=7&amp;payment_id={payment['id']}&amp;status=completed" in page.text


@pytest.mark.parametrize("tampered", ["body", "secret"])
def test_a_forged_event_fails_both_verifications(merchant: Merchant, receiver: Receiver, tampered: str) -> None:
    api = merchant.client()
    endpoint = api.post("/webhooks", json={"url": receiver.url, "events": ["payment.created"]}).json()["data"]
    api.post("/payments", json={"amount": 5, "currency": "ETB"})
    genuine = receiver.wait_for(1)[0]
    body = genuine.body.replace(b"5.00", b"9.00") if tampered == "body" else genuine.body
    secret = "whsec_" + "A" * 43 + "=" if tampered == "secret" else endpoint["secret"]
    forged = Received(genuine.at, genuine.headers, body)
    assert not is_signed_as_the_contract_says(forged, secret)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        is_a_standard_webhook(forged, secret)


def token_of(html: str) -> str:
    return html.split('name="form_token" value="', 1)[1].split('"', 1)[0]
