"""Merchants look their requests up by id, idempotency key, object, path or outcome; nothing personal is kept."""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import pytest

from tests.support.dashboard import Visitor, errors, fetch, heading, new_user, text_of
from tests.support.gateway import Gateway, Merchant
from tests.support.money import paid, refund

PATH = "/dashboard/sandbox/requests"
ORDER = {
    "amount": 150.00,
    "currency": "ETB",
    "customer": {"email": "abebe@example.et", "phone": "+251911234567", "name": "Abebe Bikila"},
    "callback_url": "https://shop.example.et/back?token=abc123",
    "metadata": {"order": "A-1042"},
}


@pytest.fixture
def visitor(gateway: Gateway, merchant: Merchant) -> Iterator[Visitor]:
    visitor = Visitor(gateway.origin)
    visitor.signs_in(new_user(gateway, merchant))
    yield visitor
    visitor.close()


def page_once_written(visitor: Visitor, path: str, text: str) -> str:
    """The page when it says `text`: a request is written within about a second."""
    deadline = time.monotonic() + 15
    while text not in (found := visitor.opens(path).text):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def request_id(answer: httpx2.Response) -> str:
    return answer.headers["Zembil-Request-Id"]


def test_a_request_is_found_by_its_id_its_idempotency_key_and_what_it_made(
    merchant: Merchant, visitor: Visitor
) -> None:
    answer = merchant.client().post("/payments", json=ORDER, headers={"Idempotency-Key": "order-1042"})
    assert answer.status_code == 201
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "POST /sandbox/v1/payments")
    assert "order-1042" in page
    for search in ("order-1042", answer.json()["data"]["id"]):
        assert request_id(answer) in visitor.opens(f"{PATH}?search={search}").text


def test_nothing_personal_is_kept_of_a_request(gateway: Gateway, merchant: Merchant, visitor: Visitor) -> None:
    answer = merchant.client().post("/payments", json=ORDER)
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "150.0")
    assert "[removed]" in page
    rows = fetch(gateway, "SELECT r::text FROM api_requests r WHERE id::text LIKE $1", _uuid_of(answer) + "%")
    kept = rows[0][0]
    for personal in ("abebe@", "251911234567", "Bikila", "abc123", "A-1042"):
        assert personal not in page
        assert personal not in kept


def _uuid_of(answer: httpx2.Response) -> str:
    digits = request_id(answer).removeprefix("req_")
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}"


def test_neither_an_api_key_nor_what_is_personal_is_kept_of_an_address(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    key = client.headers["Authorization"].removeprefix("Bearer ")
    answer = client.get("/payments", params={"api_key": key, "phone": "+251911234567", "metadata[order]": "A-1042"})
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "[API key]")
    assert key not in page
    assert "251911234567" not in page
    assert "metadata[order]" in page
    assert "A-1042" not in page


def test_neither_an_api_key_nor_what_is_personal_is_kept_of_a_refusal(
    gateway: Gateway, merchant: Merchant, visitor: Visitor
) -> None:
    client = merchant.client()
    key = client.headers["Authorization"].removeprefix("Bearer ")
    answer = client.post("/customers", json={"phone": "0911234567", "name": "Abebe Bikila"})
    assert "+251911234567" in answer.text
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Give the number in international form")
    assert "[removed]" in page
    told = client.post("/webhooks", json={"url": "http://a.example.et/", "events": [key]})
    assert key in told.text
    twice = b'{"abebe@example.et": 1, "abebe@example.et": 2, "' + key.encode() + b'": 1, "' + key.encode() + b'": 2}'
    named = client.post("/payments", content=twice, headers={"Content-Type": "application/json"})
    assert "abebe@example.et" in named.text
    for refused in (answer, told, named):
        page = page_once_written(visitor, f"{PATH}?search={request_id(refused)}", "What was answered")
        rows = fetch(gateway, "SELECT refusal FROM api_requests WHERE id::text LIKE $1", _uuid_of(refused) + "%")
        for secret in (key, "1911234567", "abebe@example.et", "Bikila"):
            assert secret not in rows[0][0]


def test_a_refusal_keeps_the_examples_that_it_gives(merchant: Merchant, visitor: Visitor) -> None:
    answer = merchant.client().post("/customers", json={"phone": "12", "email": "nobody"})
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "for example +251911223344")
    assert "for example abebe@example.com" in page


def test_an_idempotency_key_is_found_without_the_key_or_the_person_in_it(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    key = client.headers["Authorization"].removeprefix("Bearer ")
    for given, kept in (
        (f"{key}-1", "[API key]-1"),
        ("1/abebe@example.et", "1/[removed]"),
        ("+251911234567-3", "[removed]-3"),
    ):
        answer = client.post("/payments", json=ORDER, headers={"Idempotency-Key": given})
        assert answer.status_code == 201
        page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", kept)
        assert given not in page
        found = visitor.get(PATH, params={"search": given})
        assert request_id(answer) in found.text
        assert "Every request with this idempotency key" not in page


def test_the_requests_with_one_idempotency_key_stand_together_and_no_others(
    merchant: Merchant, visitor: Visitor
) -> None:
    client = merchant.client()
    refused = client.post("/payments", json=ORDER, headers={"Idempotency-Key": "k" * 300})
    for key in ("order-1", "+251911234567-3", "order-2", "+251922334455-3", "order-1"):
        last = client.post("/payments", json=ORDER, headers={"Idempotency-Key": key})
    page_once_written(visitor, PATH, request_id(last))
    assert request_id(refused) in visitor.get(PATH, params={"search": "k" * 300}).text  # kept cut, and found as sent
    for one, together in ((last, 2), (refused, 1)):
        page = visitor.opens(f"{PATH}?search={request_id(one)}").text
        link = re.search(r'href="([^"]+)">Every request with this idempotency key', page)
        assert link is not None
        found = re.findall(r"req_[0-9a-f]{26}", visitor.opens(unescape(link[1])).text)
        assert (len(found), request_id(one) in found) == (together, True)


def test_what_looks_like_a_card_number_is_masked(merchant: Merchant, visitor: Visitor) -> None:
    answer = merchant.client().post("/payments", json={**ORDER, "description": "Card 4111 1111 1111 1111"})
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Card ****")
    assert "4111 1111 1111" not in page


def command_of(page: str) -> str:
    """The request for curl, as it would be copied."""
    match = re.search(r'aria-label="The request for curl">(.*?)</pre>', page, re.DOTALL)
    assert match is not None
    return unescape(match[1])


def words_of(command: str) -> list[str]:
    """The words as a shell takes them, which joins the lines first."""
    return shlex.split(command.replace("\\\n", ""))


def demand_asks_alike(command: str, request: httpx2.Request, body: Any) -> None:
    """The words of a command are those for a request and its body."""
    address = next(word for word in words_of(command) if word.startswith("http"))
    assert not set(address) & set("[]{}")
    again = httpx2.URL(address)
    assert again.path == request.url.path
    assert parse_qsl(again.query.decode(), True) == parse_qsl(request.url.query.decode(), True)
    as_it_is = ["--path-as-is"] if "/." in address else []
    words = ["curl", "-X", request.method, *as_it_is, address, "-H", "Authorization: Bearer $KEY"]
    if body is None:
        assert words_of(command) == words
    else:
        *others, sent = words_of(command)
        assert others == [*words, "-H", "Content-Type: application/json", "--data-raw"]
        assert json.loads(sent) == body


def ran(command: str, client: httpx2.Client) -> bytes | None:
    """What the command prints, run by a shell; None where there is no curl."""
    if shutil.which("curl") is None:
        return None
    key = client.headers["Authorization"].removeprefix("Bearer ")
    environment = {"PATH": os.environ["PATH"], "KEY": key}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, timeout=30, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/payments?reference=a[1-3]{4,5}&limit=2&date_from=2026-01-01T00:00:00%2B03:00", None),
        ("GET", '/payments/it\'s $HOME & {a,b} [1-3] "q" ቡና', None),
        ("GET", "/payments?reference=it's+%24HOME+%7Ba,b%7D+%22q%22+%25+ቡና&limit=0", None),
        ("POST", "/refunds", {"amount": 'it\'s $(id) `id` \\ "q"\n\t!! ቡና', "payment_id": "@/etc/hostname"}),
        ("POST", "/payments", {"amount": 150.5, "currency": "ETB", "description": 'it\'s $HOME\n`id` \\ "q" ቡና'}),
        ("PATCH", "/customers/cus_00000000000000000000000000", {"email": None}),
        ("DELETE", "/customers/cus_00000000000000000000000000", None),
        ("POST", "/payments/pay_00000000000000000000000000/cancel", None),
        ("PUT", "/payments/../payments", None),
    ],
)
def test_a_request_is_copied_as_a_command_that_is_answered_alike(
    merchant: Merchant, visitor: Visitor, method: str, path: str, body: Any
) -> None:
    client = merchant.client()
    sent = {} if body is None else {"json": body}
    answer = client.request(method, path, headers={"Idempotency-Key": "once"}, **sent)
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Send it again")
    command = command_of(page)
    assert ("Idempotency-Key is left out" in page, "Idempotency-Key" in command) == (True, False)
    assert "was not kept" not in page
    demand_asks_alike(command, answer.request, body)
    again = ran(command, client)
    if again is not None:
        assert _alike(json.loads(again)) == _alike(answer.json())


def test_a_request_for_the_head_is_copied_without_its_body(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    answer = client.request("HEAD", "/payments?limit=2", json={"a": 1})
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Send it again")
    command, address = command_of(page), str(answer.request.url)
    assert words_of(command) == ["curl", "--head", address, "-H", "Authorization: Bearer $KEY"]
    again = ran(command, client)
    if again is not None:
        assert int(again.split()[1]) == answer.status_code


def test_what_was_removed_of_an_address_stands_in_the_command_as_in_the_log(
    merchant: Merchant, visitor: Visitor
) -> None:
    client = merchant.client()
    key = client.headers["Authorization"].removeprefix("Bearer ")
    query = {"phone": "+251911234567", "metadata[to]": "x", "a": key, "b": "4111 1111 1111 1111", "c": "{[1]}"}
    answer = client.get("/payments/+251911234567", params=query)
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Send it again")
    words = words_of(command_of(page))
    assert words[:4] == ["curl", "-X", "GET", "--globoff"]
    assert words[4].endswith(
        "/v1/payments/[removed]?phone=[removed]&metadata%5Bto%5D=[removed]&a=[API key]&b=****+****+****+1111"
        "&c=%7B%5B1%5D%7D"
    )
    assert "put it back where [removed] or [API key] or **** stands" in page
    assert ran(command_of(page).replace("[API key]", "1"), client) in (None, answer.content)


def _alike(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between two payments."""
    own = ("id", "payment_link", "qr_code", "expires_at", "created_at")
    data = {name: value for name, value in answer.get("data", {}).items() if name not in own}
    return {**answer, "data": data}


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (json.dumps(ORDER).encode(), "put it back where [removed] stands"),
        (b'{"callback_url": "https://a.et/?token=abc", "x": "sk_test_abc"}', "where [removed] or [API key] stands"),
        (b"{no", "The body was no JSON"),
        (json.dumps({"amount": "x" * 5000}).encode(), "The body was longer"),
    ],
)
def test_a_command_says_what_was_not_kept(merchant: Merchant, visitor: Visitor, body: bytes, remark: str) -> None:
    answer = merchant.client().post("/payments", content=body, headers={"Content-Type": "application/json"})
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "Send it again")
    assert remark in page
    assert "abc" not in command_of(page)


def test_a_search_for_what_nobody_can_have_sent_finds_nothing(visitor: Visitor) -> None:
    assert "req_" not in text_of(found := visitor.get(f"{PATH}?search=%00"))
    assert found.status_code == 200


def test_a_refused_request_says_why(merchant: Merchant, visitor: Visitor) -> None:
    answer = merchant.client().post("/payments", json={"amount": "a lot", "currency": "ETB"})
    assert answer.status_code == 400
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "validation_error")
    assert "What was answered" in page


def test_the_list_says_why_each_refused_request_was_refused(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    client.post("/payments", json={"amount": "a lot", "currency": "ETB"})
    missing = client.get("/payments/pay_00000000000000000000000000")
    page_once_written(visitor, PATH, request_id(missing))
    shown = text_of(visitor.get(PATH))
    assert "400 validation_error: amount" in shown
    assert "404 resource_not_found" in shown
    assert "resource_not_found:" not in shown


def test_what_a_request_made_is_a_link_to_its_page_where_it_has_one(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    payment = paid(client)
    customer = client.post("/customers", json={"name": "Abebe", "email": "abebe@example.et"}).json()["data"]
    asked = refund(client, payment, 10)
    endpoint = client.post("/webhooks", json={"url": "https://shop.example.et/hooks", "events": ["*"]}).json()["data"]
    for kind, made in (("payments", payment), ("customers", customer), ("refunds", asked)):
        href = f'href="/dashboard/sandbox/{kind}/{made["id"]}"'
        listed = page_once_written(visitor, f"{PATH}?search={made['id']}", "req_")
        page = visitor.get(f"{PATH}/{re.findall(r'req_[0-9a-f]{26}', listed)[0]}").text
        assert href in page
    listed = page_once_written(visitor, f"{PATH}?search={endpoint['id']}", "req_")
    page = visitor.get(f"{PATH}/{re.findall(r'req_[0-9a-f]{26}', listed)[0]}").text
    assert endpoint["id"] in page
    assert not re.search(rf'href="[^"]*{endpoint["id"]}', page)


def test_the_list_shows_the_newest_first_and_filters(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    made = client.post("/payments", json=ORDER)
    refused = client.post("/refunds", json={})
    read = client.get("/payments")
    page = page_once_written(visitor, PATH, request_id(read))
    found = re.findall(r"req_[0-9a-f]{26}", page)
    assert found == [request_id(read), request_id(refused), request_id(made)]
    assert re.findall(r"req_[0-9a-f]{26}", visitor.opens(f"{PATH}?outcome=refused").text) == [request_id(refused)]
    assert re.findall(r"req_[0-9a-f]{26}", visitor.opens(f"{PATH}?method=GET&path=").text) == [request_id(read)]
    assert re.findall(r"req_[0-9a-f]{26}", visitor.opens(f"{PATH}?path=/sandbox/v1/ref").text) == [request_id(refused)]


def test_the_list_goes_on_page_by_page(merchant: Merchant, visitor: Visitor) -> None:
    client = merchant.client()
    answers = [client.get("/balance") for _ in range(12)]
    page = page_once_written(visitor, PATH, request_id(answers[-1]))
    older = re.search(r'href="([^"]+)">Older', page)
    assert older is not None
    found = re.findall(r"req_[0-9a-f]{26}", page + visitor.opens(older[1].replace("&amp;", "&")).text)
    assert found == [request_id(answer) for answer in reversed(answers)]


def test_another_merchants_and_the_other_environments_requests_do_not_open(
    gateway: Gateway, merchant: Merchant, visitor: Visitor
) -> None:
    answer = merchant.client(livemode=True).get("/balance")
    page_of_none = f"There is no request {request_id(answer)}"
    assert page_of_none in visitor.opens(f"{PATH}/{request_id(answer)}").text


@pytest.mark.parametrize("query", ["cursor=abc", "outcome=won", "method=BREW", "limit=0", "path=%00"])
def test_a_query_that_makes_no_sense_is_answered_with_a_page_that_says_so(visitor: Visitor, query: str) -> None:
    answer = visitor.get(f"{PATH}?{query}")
    assert answer.status_code == 400
    assert heading(answer)
    assert not errors(answer)
