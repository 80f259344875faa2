"""Merchants look their requests up by id, idempotency key, object, path or outcome; nothing personal is kept."""

import re
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.support.dashboard import Visitor, errors, fetch, heading, new_user, text_of
from tests.support.gateway import Gateway, Merchant

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


def test_a_search_for_what_nobody_can_have_sent_finds_nothing(visitor: Visitor) -> None:
    assert "req_" not in text_of(found := visitor.get(f"{PATH}?search=%00"))
    assert found.status_code == 200


def test_a_refused_request_says_why(merchant: Merchant, visitor: Visitor) -> None:
    answer = merchant.client().post("/payments", json={"amount": "a lot", "currency": "ETB"})
    assert answer.status_code == 400
    page = page_once_written(visitor, f"{PATH}?search={request_id(answer)}", "validation_error")
    assert "What was answered" in page


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
