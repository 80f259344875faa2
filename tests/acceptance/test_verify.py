"""zembil verify: what adds up is said to, and the first row that does not is named."""

import json
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_management import zembil
from tests.support.database import account_of, query
from tests.support.gateway import Gateway
from tests.support.money import decide, found, paid, pushed, refund
from zembil import ids
from zembil.db.embedded import EmbeddedPostgres
from zembil.ids import Prefix


class Books:
    """A merchant with a payment paid and partly refunded, one that failed, and one that waits."""

    def __init__(self, gateway: Gateway) -> None:
        self.merchant = gateway.new_merchant()
        self.account = account_of(gateway, self.merchant.sandbox["admin_key"])
        api = self.merchant.client()
        self.paid = paid(api, amount=100)["id"]
        self.failed = pushed(api, "+251900000001")["id"]
        self.pending = api.post("/payments", json={"amount": 7, "currency": "ETB"}).json()["data"]["id"]
        asked = refund(api, {"id": self.paid}, 30)
        decide(api, asked, "approve")
        assert eventually(lambda: found(api, asked)["status"] == "completed", seconds=10)
        assert eventually(lambda: found(api, {"id": self.failed})["status"] == "failed", seconds=10)
        self.refund = asked["id"]
        self.rejected = refund(api, {"id": self.paid}, 70)["id"]
        decide(api, {"id": self.rejected}, "reject")
        unsealed = "SELECT 1 FROM audit_entries WHERE account_id = $1 AND number IS NULL"
        assert eventually(lambda: query(gateway, unsealed, self.account) == [], seconds=15)

    def named(self, what: str) -> str:
        """What `verify` calls a row of ours."""
        return f"{getattr(self, what)} of account {self.account}" if what else f"account {self.account}"

    def id_of(self, what: str) -> uuid.UUID | None:
        shown: str = getattr(self, what)
        return ids.parsed(Prefix(shown[:4]), shown)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One of our own: other tests may write rows that add up to nothing."""
    running = Gateway(tmp_path_factory.mktemp("verify") / "data")
    yield running
    running.stop()
    EmbeddedPostgres.reset(running.data / "postgres")


@pytest.fixture(scope="module")
def books(gateway: Gateway) -> Iterator[Books]:
    made = Books(gateway)
    yield made
    made.merchant.close()


def verdict(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    ended = zembil(gateway, "verify", "--json")
    return ended.returncode, json.loads(ended.stdout)


def test_what_adds_up_is_said_to(gateway: Gateway, books: Books) -> None:
    del books
    ended = zembil(gateway, "verify")
    assert ended.returncode == 0, ended.stdout
    assert len(ended.stdout.splitlines()) == 13
    assert all(line.startswith("ok ") for line in ended.stdout.splitlines())
    status, document = verdict(gateway)
    assert (status, document["ok"]) == (0, True)
    assert all(check == {"name": check["name"], "wrong": 0, "first": None} for check in document["checks"])


BALANCE = """
    UPDATE ledger_balances SET credit_santim = credit_santim + {0}
    WHERE account_id = $1 AND $2::uuid IS NOT NULL AND ledger_account = 'merchant_balance' AND slot = (
        SELECT min(slot) FROM ledger_balances WHERE account_id = $1 AND ledger_account = 'merchant_balance')
"""
ENTRY = """
    UPDATE ledger_entries SET amount_santim = amount_santim + {0}
    WHERE account_id = $1 AND source_id IN (SELECT id FROM charges WHERE account_id = $1 AND payment_id = $2)
"""
COUNT = """
    UPDATE payment_counts SET failed = failed + {0}
    WHERE account_id = $1 AND $2::uuid IS NOT NULL AND hour = '-infinity' AND slot = (
        SELECT min(slot) FROM payment_counts WHERE account_id = $1 AND hour = '-infinity')
"""
VOLUME = COUNT.replace("failed", "completed_santim")
EVENT = """
    UPDATE events SET type = CASE {0} WHEN 1 THEN 'payment.pending' ELSE 'payment.failed' END
    WHERE account_id = $1 AND object_id = $2 AND sequence = (
        SELECT max(sequence) FROM events WHERE account_id = $1 AND object_id = $2)
"""
RESERVED = "UPDATE payments SET reserved_santim = reserved_santim + {0} WHERE account_id = $1 AND id = $2"
REFUNDED = "UPDATE payments SET refunded_santim = refunded_santim - {0} WHERE account_id = $1 AND id = $2"
REFUND = "UPDATE refunds SET amount_santim = amount_santim + 8000 * {0} WHERE account_id = $1 AND id = $2"

AUDITED = """
    UPDATE audit_entries SET actor = CASE {0} WHEN 1 THEN 'x' || actor ELSE substr(actor, 2) END
    WHERE account_id = $1 AND $2::uuid IS NOT NULL AND number = 1
"""
TAKEN_OUT = """
    UPDATE audit_entries SET number = number + {0}
    WHERE account_id = $1 AND $2::uuid IS NOT NULL AND number > 1
"""

BROKEN = [
    # how it is broken (with 1) and mended (with -1), whose row, the checks that see it, the row that is named
    (BALANCE, "paid", ["every debit is a credit", "balances are the sums of their entries"], ""),
    (ENTRY, "paid", ["balances are the sums of their entries", "money that came is booked, and nothing else"], ""),
    (COUNT, "failed", ["totals of lists are the rows there are"], ""),
    (VOLUME, "paid", ["the volume is the sum of the completed payments"], ""),
    (EVENT, "failed", ["the end of a payment was told once"], "failed"),
    (AUDITED, "paid", ["nothing in the audit log was changed or taken out"], ""),
    (TAKEN_OUT, "paid", ["nothing in the audit log was changed or taken out"], ""),
    (RESERVED, "paid", ["what is reserved is the sum of the refunds"], "paid"),
    (REFUNDED, "paid", ["what is refunded is the sum of the completed refunds"], "paid"),
    (
        *(REFUND, "refund"),
        [
            "money that goes back is booked, and nothing else",
            "refunds are at most their payment",
            "what is refunded is the sum of the completed refunds",
            "what is reserved is the sum of the refunds",
        ],
        "refund",
    ),
]


@contextmanager
def broken(gateway: Gateway, statement: str, *values: object) -> Generator[None]:
    query(gateway, statement.format(1), *values)
    try:
        yield
    finally:
        query(gateway, statement.format(-1), *values)


@pytest.mark.parametrize(("statement", "row", "checks", "named"), BROKEN)
def test_a_row_that_is_wrong_is_named(
    gateway: Gateway, books: Books, statement: str, row: str, checks: list[str], named: str
) -> None:
    with broken(gateway, statement, books.account, books.id_of(row)):
        status, document = verdict(gateway)
        said = zembil(gateway, "verify")
    assert (status, document["ok"]) == (1, False)
    wrong = [check for check in document["checks"] if check["wrong"]]
    assert sorted(check["name"] for check in wrong) == sorted(checks)
    assert any(books.named(named) in check["first"] for check in wrong)
    assert said.returncode == 1
    for check in wrong:
        assert f"wrong {check['name']}" in said.stdout
        assert check["first"] in said.stdout
    assert verdict(gateway)[0] == 0


def test_without_data_it_says_where_to_find_some(gateway: Gateway) -> None:
    elsewhere = Gateway.__new__(Gateway)
    elsewhere.data = gateway.data.with_name("nowhere")
    ended = zembil(elsewhere, "verify")
    assert ended.returncode == 1
    assert "ZEMBIL_DATABASE_URL" in ended.stderr


def test_books_at_rest_are_verified_too(start: Callable[..., Gateway]) -> None:
    stopped = start()
    merchant = stopped.merchant
    assert merchant.client().post("/payments", json={"amount": 7, "currency": "ETB"}).status_code == 201
    merchant.close()
    stopped.stop()
    ended = zembil(stopped, "verify")
    assert ended.returncode == 0, ended.stdout + ended.stderr
