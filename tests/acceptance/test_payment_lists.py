"""GET /payments: exactly what the filters say, counted exactly, and walked without a gap."""

import os
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations, cycle, islice
from typing import Any

import httpx2
import pytest

from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import advance, created
from zembil import ids

ENDS = ("complete", "fail", "cancel", None)
PHONES = ("+251911000001", "+251911000002")
BRANCHES = ("Merkato", "Bole")
# What a filter's parameter demands of a payment.
FITS: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "status": lambda payment, value: payment["status"] == value,
    "reference": lambda payment, value: payment.get("reference") == value,
    "phone": lambda payment, value: payment["customer"]["phone"] == value,
    "customer": lambda payment, value: payment["customer_id"] == value,
    "metadata[branch]": lambda payment, value: payment["metadata"]["branch"] == value,
    "date_from": lambda payment, value: payment["created_at"] >= value,
    "date_to": lambda payment, value: payment["created_at"] <= value,
}


@pytest.fixture(scope="module")
def payments(shop: Merchant) -> list[dict[str, Any]]:
    """Forty payments of ten hours, newest first, of every status, some of them of one reference in turn."""
    api, chance = shop.client(), random.Random(7)  # noqa: S311  (no secret: the same payments each time)
    customers = [api.post("/customers", json={"phone": phone}).json()["data"]["id"] for phone in PHONES]
    made: list[dict[str, Any]] = []
    for number, end in enumerate(islice(cycle(ENDS), 40)):
        fields: dict[str, Any] = {
            "customer": {"phone": chance.choice(PHONES)},
            "metadata": {"branch": chance.choice(BRANCHES)},
            "expires_in": 2592000,
        }
        customer = chance.choice([None, *customers])
        if customer is not None:
            fields["customer"]["id"] = customer
        if end in ("fail", "cancel"):  # their reference is free again
            fields["reference"] = f"order-{chance.randrange(2)}"
        payment = created(api, **fields)
        if end is not None:
            assert api.post(f"/test/payments/{payment['id']}/{end}").status_code == 200
        shown = api.get(f"/payments/{payment['id']}").json()["data"]
        made.append(shown | {"customer_id": customer})
        if number % 4 == 3:
            advance(api, 3600)
    return made[::-1]


@pytest.mark.parametrize("filters", [names for n in range(len(FITS) + 1) for names in combinations(FITS, n)])
def test_every_set_of_filters_lists_and_counts_exactly_what_fits(
    shop: Merchant, payments: list[dict[str, Any]], filters: tuple[str, ...]
) -> None:
    chance = random.Random(repr(filters))  # noqa: S311
    like = chance.choice([payment for payment in payments if "reference" in payment and payment["customer_id"]])
    values = {
        "status": like["status"],
        "reference": like["reference"],
        "phone": like["customer"]["phone"],
        "customer": like["customer_id"],
        "metadata[branch]": like["metadata"]["branch"],
        "date_from": chance.choice([payment["created_at"] for payment in payments if payment["id"] <= like["id"]]),
        "date_to": chance.choice([payment["created_at"] for payment in payments if payment["id"] >= like["id"]]),
    }
    wanted = {name: values[name] for name in filters}
    expected = [
        payment["id"] for payment in payments if all(FITS[name](payment, value) for name, value in wanted.items())
    ]
    assert like["id"] in expected
    api = shop.client()
    assert listed(api, limit=100, **wanted) == (expected, len(expected), None)
    first, total, cursor = listed(api, limit=3, offset=2, **wanted)
    assert (first, total) == (expected[2:5], len(expected))
    if cursor is not None:
        assert listed(api, limit=100, cursor=cursor, **wanted)[:2] == (expected[5:], len(expected))
    assert (cursor is None) == (len(first) < 3)


@pytest.mark.parametrize("limit", [7, 100])
def test_a_walk_neither_skips_nor_repeats_while_payments_are_added(
    gateway: Gateway, merchant: Merchant, limit: int
) -> None:
    api = merchant.client(livemode=True)
    now = datetime.now(UTC)
    stored = [ids.id_at(now - timedelta(seconds=number), os.urandom(10)) for number in range(1, 200 * limit)]
    query(
        gateway,
        """
        INSERT INTO payments (account_id, id, amount_santim, expires_at, link_secret)
        SELECT $1, id, 100, now(), decode(repeat('5a', 16), 'hex') FROM unnest($2::uuid[]) AS id
        """,
        account_of(gateway, merchant.live["admin_key"]),
        stored,
    )
    there = [ids.shown(ids.Prefix.PAYMENT, payment_id) for payment_id in stored]
    there += [created(api)["id"] for _ in range(5)]
    is_over = threading.Event()
    added: list[str] = []

    def add() -> None:
        with merchant.client(livemode=True) as client:
            while not is_over.is_set():
                added.append(created(client)["id"])

    writers = [threading.Thread(target=add) for _ in range(3)]
    for writer in writers:
        writer.start()
    walked: list[str] = []
    parameters: dict[str, Any] = {"limit": limit}
    while True:
        page, _, cursor = listed(api, **parameters)
        walked += page
        if cursor is None:
            break
        parameters["cursor"] = cursor
    is_over.set()
    for writer in writers:
        writer.join(timeout=30)
    assert len(added) > 20
    meanwhile = set(added)
    assert [payment for payment in walked if payment not in meanwhile] == sorted(there, reverse=True)


def listed(api: httpx2.Client, **parameters: Any) -> tuple[list[str], int, str | None]:
    """A page: the ids, the total, and the cursor of the next one."""
    answer = api.get("/payments", params=parameters)
    assert answer.status_code == 200, answer.text
    page = answer.json()["data"]
    found = [payment["id"] for payment in page["payments"]]
    return found, page["pagination"]["total"], page["pagination"].get("next_cursor")
