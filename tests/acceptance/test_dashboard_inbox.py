"""The inbox: a receiver in the sandbox that keeps what comes, and says why a signature differs."""

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from html import unescape

import httpx2
import pytest

from tests.acceptance.test_dashboard_settings import followed, once_it_says, revealed
from tests.support.dashboard import Visitor, fetch, new_user
from tests.support.gateway import Gateway, Merchant
from zembil.accounts.model import Role
from zembil.webhooks import signature

INBOX = "/dashboard/sandbox/inbox"


@pytest.fixture
def visitor(gateway: Gateway, merchant: Merchant) -> Iterator[Visitor]:
    visitor = Visitor(gateway.origin)
    visitor.signs_in(new_user(gateway, merchant, role=Role.DEVELOPER))
    yield visitor
    visitor.close()


def address(visitor: Visitor) -> str:
    match = re.search(r'<pre class="code"[^>]*>(http[^<]+/inbox/[^<]+)</pre>', visitor.opens(INBOX).text)
    assert match is not None
    return match[1]


def first_request(visitor: Visitor) -> str:
    match = re.search(rf'href="({INBOX}/requests/[^"]+)"', visitor.opens(INBOX).text)
    assert match is not None
    return match[1]


def body_of(page: str) -> bytes:
    match = re.search(r'aria-labelledby="body">(\{.*?\})</pre>', page, re.DOTALL)
    assert match is not None
    return unescape(match[1]).encode()


def header_of(page: str, name: str) -> str:
    match = re.search(rf"^(?:<pre[^>]*>)?{name}: (.*)$", page, re.MULTILINE)
    assert match is not None
    return unescape(match[1])


def judgement(page: str) -> str:
    """What is said of the signature that was pasted."""
    match = re.search(r'<p role="status" class="notice[^"]*">(.*?)</p>', page, re.DOTALL)
    assert match is not None
    return unescape(match[1])


def test_an_event_arrives_in_the_inbox_and_its_signature_is_right(merchant: Merchant, visitor: Visitor) -> None:
    secret = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")))
    assert merchant.client().post("/payments", json={"amount": 10, "currency": "ETB"}).status_code == 201
    assert "Right" in once_it_says(visitor, INBOX, "payment.created")
    page = visitor.opens(first_request(visitor)).text
    assert "It is right" in page
    assert hmac.new(secret.encode(), body_of(page), hashlib.sha256).hexdigest() in page
    assert "webhook-id: evt_" in page
    assert page.count("It is right") == 2
    event_id, timestamp, standard = (header_of(page, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    assert standard == signature.standard_signature(secret, body_of(page), event_id=event_id, timestamp=int(timestamp))
    assert unescape(page).count(standard) == 3  # received, computed, and among the headers


def test_the_body_is_shown_as_it_came_and_indented(visitor: Visitor) -> None:
    def shown(body: bytes) -> str:
        assert httpx2.post(address(visitor), content=body).status_code == 200
        return unescape(visitor.opens(first_request(visitor)).text)

    page = shown(b'{"amount":10.00,"name":"Abebe"}')
    assert '>{"amount":10.00,"name":"Abebe"}</pre>' in page
    assert "the bytes that were signed are those above" in page
    assert '>{\n  "amount": 10.00,\n  "name": "Abebe"\n}</pre>' in page
    for body in (b"no JSON", b"\xff", b"NaN", '{"a":1}'.encode("utf-16"), b"[" * 30_000 + b"]" * 30_000):
        assert "the bytes that were signed are those above" not in shown(body)


def test_an_inbox_with_an_endpoint_says_what_to_do_next(visitor: Visitor) -> None:
    assert "Send every event here, then make a payment" in visitor.opens(INBOX).text
    page = followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")).text
    assert "Make a payment, or simulate an event under Settings, Webhooks." in page
    assert "then make a payment" not in page


def test_an_endpoint_of_another_origin_is_known_and_is_moved_here_with_its_secret(
    gateway: Gateway, merchant: Merchant, visitor: Visitor
) -> None:
    secret, url = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint"))), address(visitor)
    client, body = merchant.client(), b'{"a":1}'
    assert httpx2.post(url, content=body, headers=signed(secret, body)).status_code == 200
    (endpoint,) = client.get("/webhooks").json()["data"]["webhooks"]
    elsewhere = url.replace(gateway.origin, "http://127.0.0.1:9")
    assert client.patch(f"/webhooks/{endpoint['id']}", json={"url": elsewhere}).status_code == 200

    page = visitor.opens(INBOX).text
    assert "was registered at http://127.0.0.1:9, so" in page
    assert "Move the endpoint here" in page
    assert "Send every event here" not in page
    assert "Right" in page
    assert "Differs" not in page

    for _ in range(2):  # pressed twice, it makes no second endpoint either
        moved = followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")).text
        assert "Every event comes here" in moved
        assert "was registered at" not in moved
    (after,) = client.get("/webhooks").json()["data"]["webhooks"]
    assert (after["id"], after["url"]) == (endpoint["id"], url)
    assert client.post("/payments", json={"amount": 10, "currency": "ETB"}).status_code == 201
    assert "Differs" not in once_it_says(visitor, INBOX, "payment.created")
    assert hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() in unescape(
        visitor.opens(re.findall(rf'href="({INBOX}/requests/[^"]+)"', visitor.opens(INBOX).text)[-1]).text
    )


def test_the_inbox_checks_a_computed_webhook_signature(merchant: Merchant, visitor: Visitor) -> None:
    secret = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")))
    merchant.client().post("/payments", json={"amount": 10, "currency": "ETB"})
    once_it_says(visitor, INBOX, "payment.created")
    path = first_request(visitor)
    page = visitor.opens(path).text
    standard = header_of(page, "webhook-signature")
    for given in (standard, standard.removeprefix("v1,")):
        assert "It is right: the webhook-signature" in judgement(visitor.sends(path, signature=given).text)
    message = f"{header_of(page, 'webhook-id')}.{header_of(page, 'webhook-timestamp')}.".encode() + body_of(page)
    wrong = base64.b64encode(hmac.digest(secret.encode(), message, "sha256")).decode()
    assert "Wrong key: the whole secret as text" in judgement(visitor.sends(path, signature=f"v1,{wrong}").text)


def test_a_signature_in_the_header_of_the_other_is_not_right(visitor: Visitor) -> None:
    secret = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")))
    body = b'{"a":1}'
    made = signed(secret, body)
    swapped = {"webhook-signature": made["zembil-signature"], "zembil-signature": made["webhook-signature"]}
    assert httpx2.post(address(visitor), content=body, headers={**made, **swapped}).status_code == 200
    assert "Differs" in visitor.opens(INBOX).text
    assert visitor.opens(first_request(visitor)).text.count("what the other header should hold") == 2


def test_the_inbox_says_why_what_somebody_computes_differs(merchant: Merchant, visitor: Visitor) -> None:
    secret = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")))
    other = merchant.client().post("/webhooks", json={"url": "http://127.0.0.1:9/", "events": ["refund.failed"]})
    merchant.client().post("/payments", json={"amount": 10, "currency": "ETB"})
    once_it_says(visitor, INBOX, "payment.created")
    page = first_request(visitor)
    body = body_of(visitor.opens(page).text)

    def said(key: str, message: bytes) -> str:
        digest = hmac.new(key.encode(), message, hashlib.sha256).hexdigest()
        return visitor.sends(page, signature=digest).text

    assert "It is right" in said(secret, body)
    assert "Re-serialised JSON" in said(secret, json.dumps(json.loads(body)).encode())
    assert "A trailing line break was added" in said(secret, body + b"\n")
    assert "Wrong secret" in said(other.json()["data"]["secret"], body)
    assert "Nothing that is usually done" in said("whsec_nobody", body)


def test_whoever_knows_the_address_can_send_to_it_and_a_wrong_signature_is_explained(visitor: Visitor) -> None:
    secret = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint")))
    body = b'{"a": 1}'
    digest = hmac.new(secret.encode(), b'{"a":1}', hashlib.sha256).hexdigest()
    headers = {"zembil-signature": f"t=1,v1={digest}", "Authorization": "Bearer sk_test_secret"}
    assert httpx2.post(address(visitor), content=body, headers=headers).status_code == 200
    page = visitor.opens(first_request(visitor)).text
    assert "Re-serialised JSON" in page
    assert "sk_test_secret" not in page


@pytest.fixture
def stranger() -> Iterator[httpx2.Client]:
    """Somebody elsewhere who knows an address; what one test sends counts against no other."""
    client = httpx2.Client(transport=httpx2.HTTPTransport(local_address=f"127.9.{time.time_ns() // 1000 % 250}.9"))
    yield client
    client.close()


def signed(secret: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
    """The headers of a delivery that leaves now."""
    return signature.headers(
        secret,
        body,
        event_id="evt_00000000000000000000000000",
        timestamp=int(time.time() if at is None else at),
        service_name="zembil",
        version="1",
    )


def test_the_last_hundred_requests_are_kept_and_none_that_is_too_large(
    gateway: Gateway, visitor: Visitor, stranger: httpx2.Client
) -> None:
    secret, url = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint"))), address(visitor)
    for number in range(103):
        body = f"<script>alert({number})</script>".encode()
        assert stranger.post(url, content=body, headers=signed(secret, body)).status_code == 200
    assert stranger.post(url, content=b"x" * (64 * 1024 + 1)).status_code == 413
    assert visitor.opens(INBOX).text.count("A request</a>") == 100
    kept = "SELECT count(*) FROM inbox_requests r JOIN inboxes i USING (account_id) WHERE i.token = $1"
    assert fetch(gateway, kept, url.rpartition("/")[2])[0][0] == 100
    page = visitor.opens(first_request(visitor)).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(102)" in page
    followed(visitor, visitor.sends(INBOX, f"{INBOX}/clear"))
    assert "Nothing came yet" in visitor.opens(INBOX).text


def test_whoever_knows_the_address_cannot_flood_the_inbox_and_deliveries_still_arrive(
    merchant: Merchant, visitor: Visitor, stranger: httpx2.Client
) -> None:
    secret, url = revealed(followed(visitor, visitor.sends(INBOX, f"{INBOX}/endpoint"))), address(visitor)
    body = b'{"a":1}'
    forged = {"webhook-id": "evt_1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA v1,BBBB"}
    replayed = signed(secret, body, at=time.time() - 3600)
    sent = [stranger.post(url, content=body, headers=headers) for headers in ({}, forged, replayed) * 10]
    assert [answer.status_code for answer in sent] == [200] * 20 + [429] * 10
    assert 0 < int(sent[-1].headers["Retry-After"]) <= 60
    for number in range(50):
        made = merchant.client().post("/payments", json={"amount": number + 1, "currency": "ETB"})
        assert made.status_code == 201
    deadline = time.monotonic() + 40  # four are on their way at a time
    while visitor.opens(INBOX).text.count("payment.created") < 50:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert stranger.post(url, content=body, headers=signed(secret, body)).status_code == 200


def test_what_an_address_sends_to_one_inbox_counts_against_no_other(
    gateway: Gateway, visitor: Visitor, stranger: httpx2.Client
) -> None:
    other = Visitor(gateway.origin)
    other.signs_in(new_user(gateway, gateway.new_merchant("Other")))
    answers = [stranger.post(address(visitor), content=b"{}").status_code for _ in range(21)]
    assert answers == [200] * 20 + [429]
    assert stranger.post(address(other), content=b"{}").status_code == 200
    other.close()


def test_many_strangers_together_push_out_no_more_than_a_few(visitor: Visitor) -> None:
    url, answers = address(visitor), list[int]()
    for number in range(35):
        elsewhere = httpx2.HTTPTransport(local_address=f"127.8.{time.time_ns() // 1000 % 250}.{number + 1}")
        with httpx2.Client(transport=elsewhere) as client:
            answers.append(client.post(url, content=b"{}").status_code)
    assert answers == [200] * 30 + [429] * 5


def test_an_unknown_address_keeps_nothing(gateway: Gateway) -> None:
    for token in ("nobody", "%00", "%ff", "%ed%a0%80"):
        assert httpx2.post(f"{gateway.origin}/inbox/{token}", content=b"x").status_code == 404
    assert httpx2.get(f"{gateway.origin}/inbox/nobody").status_code == 405


def test_live_has_no_inbox_and_nobody_opens_anothers(gateway: Gateway, visitor: Visitor) -> None:
    httpx2.post(address(visitor), content=b"mine")
    page = first_request(visitor)
    stranger = Visitor(gateway.origin)
    stranger.signs_in(new_user(gateway, gateway.new_merchant("Stranger")))
    assert stranger.get(page).status_code == 404
    assert stranger.sends(INBOX, page, signature="x").status_code == 404
    assert address(stranger) != address(visitor)
    stranger.sets_up_second_step()
    assert stranger.get("/dashboard/live/inbox").status_code == 404
    assert "/dashboard/live/inbox" not in stranger.opens("/dashboard/live").text
    assert stranger.get(f"{INBOX}/requests/nothing").status_code == 404
    stranger.close()


def test_who_may_only_look_neither_fills_nor_empties_the_inbox(gateway: Gateway, merchant: Merchant) -> None:
    viewer = Visitor(gateway.origin)
    viewer.signs_in(new_user(gateway, merchant, role=Role.READ_ONLY))
    assert viewer.opens(INBOX).status_code == 200
    home = "/dashboard/sandbox/your-account"
    assert viewer.sends(home, f"{INBOX}/endpoint").status_code == 403
    assert viewer.sends(home, f"{INBOX}/clear").status_code == 403
    viewer.close()
