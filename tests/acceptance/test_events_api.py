"""The feed of events: what was told is found again, byte for byte, and whoever follows it misses nothing."""

import asyncio
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from tests.acceptance.test_deliveries import create, register
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_webhook_endpoints import refused_fields
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver
from zembil import ids
from zembil.db.pool import connection

UNKNOWN = "evt_00000000000000000000000000"
PAID_AT_ONCE: dict[str, Any] = {"customer": {"phone": "+251900000000"}, "mobile_money_provider": "mpesa"}

WRITE_AN_EVENT = """
    INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
    VALUES ($1, $2, $2, 1, 'payment.created', now(), convert_to(json_build_object('id', $3::text)::text, 'UTF8'))
"""


def feed(api: httpx2.Client, **parameters: Any) -> dict[str, Any]:
    answer = api.get("/events", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def shown_ids(page: dict[str, Any]) -> list[str]:
    return [event["id"] for event in page["events"]]


def followed(api: httpx2.Client, cursor: str | None = None, *, limit: int = 7) -> tuple[list[str], str]:
    """Every event from here to the end of the feed, and where it ends."""
    seen: list[str] = []
    while True:
        page = feed(api, order="asc", limit=limit, **({"cursor": cursor} if cursor else {}))
        cursor = page["pagination"]["next_cursor"]
        seen += shown_ids(page)
        if not page["events"]:
            assert cursor
            return seen, cursor


class HeldTransaction:
    """A writer that has written an event and does not commit yet."""

    def __init__(self, gateway: Gateway, account_id: int, *, created: datetime) -> None:
        self._gateway, self._account_id = gateway, account_id
        self._id = ids.new_id(created)
        self.event_id = ids.shown(ids.Prefix.EVENT, self._id)
        self._written, self._may_end = threading.Event(), threading.Event()
        self._commits = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        async with connection(self._gateway.database_url) as conn:
            transaction: Any = conn.transaction()
            await transaction.start()
            await conn.execute(WRITE_AN_EVENT, self._account_id, self._id, self.event_id)
            self._written.set()
            await asyncio.to_thread(self._may_end.wait, 60)
            await (transaction.commit() if self._commits else transaction.rollback())

    def begin(self) -> None:
        self._thread.start()
        assert self._written.wait(20)

    def end(self, *, commits: bool) -> None:
        self._commits = commits
        self._may_end.set()
        self._thread.join(20)


@contextmanager
def held(gateway: Gateway, account_id: int, *, created: datetime) -> Generator[HeldTransaction]:
    writer = HeldTransaction(gateway, account_id, created=created)
    writer.begin()
    try:
        yield writer
    finally:
        writer.end(commits=False)


# What is there


def test_an_event_is_answered_exactly_as_it_was_delivered(merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    register(api, receiver.url, "*")
    create(api, amount=100.10, description="ቡና ☕ \u2028 </script>", metadata={"ስም": "አበበ"}, **PAID_AT_ONCE)
    for received in receiver.wait_for(4):
        answer = api.get(f"/events/{received.event['id']}")
        assert answer.status_code == 200
        assert answer.content == b'{"status":"success","data":' + received.body + b"}"
        assert received.body in api.get("/events").content


def test_the_feed_is_newest_first_and_has_every_event_also_without_an_endpoint(merchant: Merchant) -> None:
    api = merchant.client()
    payments = [create(api) for _ in range(3)]
    paid = create(api, **PAID_AT_ONCE)
    assert eventually(lambda: len(feed(api)["events"]) == 7)
    page = feed(api)
    assert page["pagination"] == {"limit": 10}
    assert shown_ids(page) == sorted(shown_ids(page), reverse=True)
    of_one = feed(api, object=paid["id"])["events"]
    assert sorted(event["sequence"] for event in of_one) == [1, 2, 3, 4]
    assert feed(api, object=paid["id"], order="asc")["events"] == of_one[::-1]
    created = feed(api, type="payment.created")["events"]
    assert [event["data"]["object"]["id"] for event in created] == [p["id"] for p in [*payments, paid]][::-1]
    assert feed(api, type="payment.completed")["events"] == of_one[:1]
    assert feed(api, type="customer.created")["events"] == []
    assert feed(api, object="cus_00000000000000000000000000")["events"] == []


def test_dates_of_the_feed_are_in_the_accounts_time(merchant: Merchant) -> None:
    api = merchant.client()
    first = create(api)
    assert api.post("/test/clock", json={"advance_seconds": 10 * 86_400}).status_code == 200
    second = create(api)

    def between(**dates: str) -> list[str]:
        return [event["data"]["object"]["id"] for event in feed(api, **dates)["events"]]

    later, day = second["created_at"], first["created_at"][:10]
    assert between() == [second["id"], first["id"]]
    assert between(date_from=later[:10]) == [second["id"]]
    assert between(date_to=day, date_from=day) == [first["id"]]
    assert between(date_to=later[:10]) == [second["id"], first["id"]]
    assert between(date_from=day, date_to=day, order="asc") == [first["id"]]
    assert between(date_from="2999-01-01") == []


@pytest.mark.parametrize(
    ("filters", "fields"),
    [
        ({"type": "payment"}, {"type"}),
        ({"object": "whk_00000000000000000000000000"}, {"object"}),
        ({"order": "up"}, {"order"}),
        ({"limit": "0"}, {"limit"}),
        ({"date_from": "2026-13-01"}, {"date_from"}),
        ({"cursor": "nonsense"}, {"cursor"}),
        ({"type": "x", "order": "x", "cursor": "x"}, {"type", "order", "cursor"}),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(shop: Merchant, filters: dict[str, str], fields: set[str]) -> None:
    assert refused_fields(shop.client().get("/events", params=filters)) == fields


def test_a_cursor_goes_with_its_filters_and_its_order(merchant: Merchant) -> None:
    api = merchant.client()
    for _ in range(3):
        create(api)
    cursor = feed(api, limit=1)["pagination"]["next_cursor"]
    assert len(feed(api, cursor=cursor, limit=100)["events"]) == 2
    for changed in ({"type": "payment.created"}, {"order": "asc"}, {"date_to": "2999-01-01"}):
        assert refused_fields(api.get("/events", params={"cursor": cursor, **changed})) == {"cursor"}
    payments = api.get("/payments", params={"limit": 1}).json()["data"]["pagination"].get("next_cursor")
    assert payments is None or refused_fields(api.get("/events", params={"cursor": payments})) == {"cursor"}


# Walking and following while events are written


@contextmanager
def writing(merchant: Merchant, *, writers: int) -> Generator[list[str]]:
    """Payments are created all the while; their ids."""
    made: list[str] = []
    over = threading.Event()

    def write() -> None:
        api = merchant.client()
        while not over.is_set():
            made.append(create(api)["id"])

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_walk_from_the_newest_neither_skips_nor_repeats_while_events_are_written(merchant: Merchant) -> None:
    api = merchant.client()
    before = [create(api)["id"] for _ in range(60)]
    seen: list[str] = []
    with writing(merchant, writers=3) as made:
        assert eventually(lambda: len(made) > 10)
        acknowledged = before + made[:]
        page = feed(api, limit=5)
        while True:
            seen += [event["data"]["object"]["id"] for event in page["events"]]
            if "next_cursor" not in page["pagination"]:
                break
            page = feed(api, limit=5, cursor=page["pagination"]["next_cursor"])
    assert len(seen) == len(set(seen))
    assert set(acknowledged) <= set(seen)


def test_a_follower_sees_every_event_once_while_many_are_written(merchant: Merchant) -> None:
    api = merchant.client()
    seen: list[str] = []
    cursor: str | None = None
    with writing(merchant, writers=4) as made:
        while len(made) < 150:
            page = feed(api, order="asc", limit=9, **({"cursor": cursor} if cursor else {}))
            cursor = page["pagination"]["next_cursor"]
            seen += [event["data"]["object"]["id"] for event in page["events"]]

    def has_all() -> bool:
        nonlocal cursor
        page = feed(api, order="asc", limit=100, **({"cursor": cursor} if cursor else {}))
        cursor = page["pagination"]["next_cursor"]
        seen.extend(event["data"]["object"]["id"] for event in page["events"])
        return set(made) <= set(seen)

    assert eventually(has_all)
    assert len(seen) == len(set(seen)) == len(made)


def test_a_follower_waits_for_whoever_may_still_write_an_earlier_event(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    first = create(api)
    assert eventually(lambda: len(feed(api, order="asc")["events"]) == 1)
    seen, cursor = followed(api)
    assert [feed(api)["events"][0]["data"]["object"]["id"]] == [first["id"]]

    # Its event's id was made long before: no clock tells that it is still to come.
    long_ago = datetime.now(UTC) - timedelta(minutes=10)
    with held(gateway, account_id, created=long_ago) as late:
        for _ in range(3):
            create(api)
        assert len(feed(api)["events"]) == 4  # newest first shows what is committed
        assert followed(api, cursor) == ([], cursor)
        late.end(commits=True)
        found, cursor = followed(api, cursor)
        assert found[0] == late.event_id
        assert len(found) == 4
        seen += found
    assert sorted(seen) == sorted(shown_ids(feed(api)))
    assert followed(api, cursor) == ([], cursor)


def test_a_writer_that_gives_up_leaves_no_gap_that_anybody_waits_for(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    with held(gateway, account_id, created=datetime.now(UTC)) as never:
        create(api)
        assert feed(api, order="asc")["events"] == []
        never.end(commits=False)
        assert eventually(lambda: len(feed(api, order="asc")["events"]) == 1)
    assert api.get(f"/events/{never.event_id}").status_code == 404


def test_a_feed_without_events_can_be_followed_from_its_beginning(merchant: Merchant) -> None:
    api = merchant.client()
    nothing, cursor = followed(api)
    assert nothing == []
    payment = create(api)
    assert eventually(lambda: feed(api, order="asc", cursor=cursor)["events"] != [])
    (event,) = feed(api, order="asc", cursor=cursor)["events"]
    assert event["data"]["object"]["id"] == payment["id"]


def test_events_are_kept_for_more_than_thirty_days(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    event_id = ids.new_id(datetime.now(UTC) - timedelta(days=31))
    shown = ids.shown(ids.Prefix.EVENT, event_id)
    query(gateway, WRITE_AN_EVENT, account_id, event_id, shown)
    assert api.get(f"/events/{shown}").json()["data"] == {"id": shown}
    assert shown_ids(feed(api)) == [shown]


# Whose


def test_another_merchants_event_is_not_there_at_all(gateway: Gateway, merchant: Merchant) -> None:
    others = gateway.new_merchant()
    theirs = others.client()
    payment = create(theirs)
    create(merchant.client(livemode=True))
    foreign = [shown_ids(feed(theirs))[0], shown_ids(feed(merchant.client(livemode=True)))[0]]
    api = merchant.client(role="read_only")
    unknown = api.get(f"/events/{UNKNOWN}")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "resource_not_found")
    for event_id in (*foreign, "evt_1", payment["id"], str(uuid.uuid4())):
        assert api.get(f"/events/{event_id}").content == unknown.content
    assert feed(api)["events"] == feed(api, object=payment["id"])["events"] == []
    assert feed(others.client(role="read_only"))["events"][0] == msgspec.json.decode(
        theirs.get(f"/events/{foreign[0]}").content
    ).get("data")
    others.close()
