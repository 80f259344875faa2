"""What the tests of money share: payments that were paid, refunds, and books that balance."""

import threading
from collections.abc import Callable
from typing import Any

import httpx2

from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from zembil import ids

PAYS, REFUND_FAILS = "+251900000000", "+251900000009"


def created(api: httpx2.Client, amount: float = 100, **fields: Any) -> dict[str, Any]:
    answer = api.post("/payments", json={"amount": amount, "currency": "ETB"} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def pushed(api: httpx2.Client, phone: str, amount: float = 100, **fields: Any) -> dict[str, Any]:
    return created(api, amount, customer={"phone": phone}, mobile_money_provider="telebirr", **fields)


def paid(api: httpx2.Client, phone: str = PAYS, amount: float = 100, **fields: Any) -> dict[str, Any]:
    """A payment that the sandbox's number has paid."""
    payment = pushed(api, phone, amount, **fields)
    assert eventually(lambda: found(api, payment)["status"] == "completed", seconds=10)
    return found(api, payment)


def found(api: httpx2.Client, thing: dict[str, Any]) -> dict[str, Any]:
    """A payment or a refund as it stands."""
    kind = {"pay": "payments", "ref": "refunds"}[thing["id"][:3]]
    answer = api.get(f"/{kind}/{thing['id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def refund(api: httpx2.Client, payment: dict[str, Any], amount: float | None = None, **fields: Any) -> dict[str, Any]:
    body = {"payment_id": payment["id"]} | ({} if amount is None else {"amount": amount}) | fields
    answer = api.post("/refunds", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def decide(api: httpx2.Client, asked: dict[str, Any], decision: str, **fields: Any) -> dict[str, Any]:
    answer = api.post(f"/refunds/{asked['id']}/{decision}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def advance(api: httpx2.Client, seconds: int) -> None:
    assert api.post("/test/clock", json={"advance_seconds": seconds}).status_code == 200


def demand_refusal(answer: httpx2.Response, status: int, code: str, *fields: str) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert {fault["field"] for fault in answer.json()["error"].get("details", [])} == set(fields)


def balances(gateway: Gateway, merchant: Merchant) -> dict[str, int]:
    """What each ledger account holds, in santim: by its entries, which must agree with the balances that are kept."""
    account = account_of(gateway, merchant.sandbox["admin_key"])
    rows = query(
        gateway,
        """
        SELECT name, sum(santim)::bigint AS santim FROM (
            SELECT credit AS name, amount_santim AS santim FROM ledger_entries WHERE account_id = $1
            UNION ALL SELECT debit, -amount_santim FROM ledger_entries WHERE account_id = $1
        ) moved GROUP BY name
        """,
        account,
    )
    kept = query(
        gateway,
        """
        SELECT ledger_account AS name, sum(credit_santim - debit_santim)::bigint AS santim
        FROM ledger_balances WHERE account_id = $1 GROUP BY ledger_account
        """,
        account,
    )
    by_entries = {row["name"]: row["santim"] for row in rows}
    assert by_entries == {row["name"]: row["santim"] for row in kept}
    assert sum(by_entries.values()) == 0
    return by_entries


def demand_books_that_balance(gateway: Gateway, merchant: Merchant) -> None:
    """The ledger agrees with the payments, the charges and the refunds that it books."""
    account = account_of(gateway, merchant.sandbox["admin_key"])
    held = balances(gateway, merchant)
    (row,) = query(
        gateway,
        """
        SELECT
            (SELECT coalesce(sum(amount_santim), 0)::bigint FROM payments WHERE account_id = $1 AND status = 'completed'
            )
                AS paid,
            (SELECT coalesce(sum(received_santim), 0)::bigint FROM charges WHERE account_id = $1 AND state = 'surplus')
                AS surplus,
            coalesce(sum(amount_santim) FILTER (WHERE state = 'completed'), 0)::bigint AS gone,
            coalesce(sum(amount_santim) FILTER (WHERE state NOT IN ('pending_approval', 'completed', 'failed')), 0)
                ::bigint AS in_transit,
            coalesce(sum(amount_santim) FILTER (WHERE NOT of_surplus AND state NOT IN ('pending_approval', 'failed')),
                0)::bigint AS from_balance,
            coalesce(sum(amount_santim) FILTER (WHERE of_surplus AND state NOT IN ('pending_approval', 'failed')), 0)
                ::bigint AS from_unallocated
        FROM refunds WHERE account_id = $1
        """,
        account,
    )
    assert held.get("rail_clearing", 0) == -(row["paid"] + row["surplus"] - row["gone"])
    assert held.get("merchant_balance", 0) == row["paid"] - row["from_balance"]
    assert held.get("refunds_in_transit", 0) == row["in_transit"]
    assert held.get("unallocated", 0) == row["surplus"] - row["from_unallocated"]
    over = query(
        gateway,
        """
        SELECT p.id FROM payments p LEFT JOIN refunds r
            ON r.account_id = p.account_id AND r.payment_id = p.id AND NOT r.of_surplus AND r.state <> 'failed'
        WHERE p.account_id = $1 GROUP BY p.account_id, p.id
        HAVING coalesce(sum(r.amount_santim), 0) <> p.reserved_santim OR p.reserved_santim > p.amount_santim
            OR coalesce(sum(r.amount_santim) FILTER (WHERE r.state = 'completed'), 0) <> p.refunded_santim
        """,
        account,
    )
    assert over == []


def story(gateway: Gateway, thing: dict[str, Any]) -> list[str]:
    """The types of an object's events, in order, numbered without gaps."""
    object_id = ids.parsed(ids.Prefix(thing["id"][:4]), thing["id"])
    rows = query(gateway, "SELECT type, sequence FROM events WHERE object_id = $1 ORDER BY sequence", object_id)
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["type"].split(".")[1] for row in rows]


def at_once(count: int, work: Callable[[int], httpx2.Response]) -> list[httpx2.Response]:
    """Do the work from so many threads, which begin together."""
    barrier = threading.Barrier(count)
    answers: list[httpx2.Response] = []

    def run(number: int) -> None:
        barrier.wait()
        answers.append(work(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(answers) == count
    return answers
