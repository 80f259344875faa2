"""The audit log: who did what that somebody may have to answer for, kept for good and not to be changed unseen."""

import asyncio
import json
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_management import zembil
from tests.support.dashboard import signed_in, text_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import at_once, created, decide, demand_refusal, refund
from zembil.accounts.model import Actor, ActorKind, AuditAction
from zembil.accounts.operations import audit, create_merchant, seal_audit_log
from zembil.db.clock import Clock
from zembil.db.migrate import migrate
from zembil.db.pool import connected, transaction
from zembil.management.verification import verify


def entries(gateway: Gateway, merchant: Merchant) -> list[Any]:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    return query(gateway, "SELECT * FROM audit_entries WHERE account_id = $1 ORDER BY id", account)


def completed(merchant: Merchant) -> dict[str, Any]:
    payment = created(merchant.client())
    assert merchant.client().post(f"/test/payments/{payment['id']}/complete").status_code == 200
    return payment


def test_what_is_done_with_keys_and_secrets_is_recorded_with_who_did_it(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    key = api.post("/keys", json={"name": "Shop", "role": "developer"}).json()["data"]
    rolled = api.post(f"/keys/{key['id']}/roll", json={"overlap_seconds": 60}).json()["data"]
    assert api.delete(f"/keys/{rolled['id']}").status_code == 200
    endpoint = api.post("/webhooks", json={"url": "http://127.0.0.1:9/x", "events": ["*"]}).json()["data"]
    rotated = api.post(f"/webhooks/{endpoint['id']}/rotate-secret", json={"overlap_seconds": 7}).json()["data"]
    found = entries(gateway, merchant)
    assert [(row["action"], row["object"]) for row in found] == [
        ("key.created", key["id"]),
        ("key.rolled", key["id"]),
        ("key.revoked", rolled["id"]),
        ("endpoint.registered", endpoint["id"]),
        ("endpoint.secret_rotated", endpoint["id"]),
    ]
    assert [json.loads(row["details"]) for row in found] == [
        {"name": "Shop", "role": "developer"},
        {"replaced_by": rolled["id"], "overlap_seconds": 60},
        {"name": "Shop", "role": "developer"},
        {"url": "http://127.0.0.1:9/x", "events": "*"},
        {"overlap_seconds": 7},
    ]
    mine = api.get("/keys").json()["data"]["keys"]
    (admin,) = [one for one in mine if one["role"] == "admin"]
    assert {(row["actor_kind"], row["actor"]) for row in found} == {("user", admin["user_id"])}
    assert len({row["key_id"] for row in found}) == 1
    written = " ".join(str(dict(row)) for row in found)
    assert not any(secret in written for secret in (key["key"], rolled["key"], endpoint["secret"], rotated["secret"]))


def test_a_decision_about_a_refund_is_recorded_once_and_a_refused_one_never(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment = completed(merchant)
    approved, rejected = refund(merchant.client(role="developer"), payment, 10), refund(api, payment, 5)
    decide(api, approved, "approve")
    decide(api, rejected, "reject", reason="Not ours.")
    for one in (approved, rejected):
        demand_refusal(api.post(f"/refunds/{one['id']}/approve"), 409, "invalid_state")
    again = refund(api, payment, 1)
    for _ in range(2):
        answer = api.post(f"/refunds/{again['id']}/approve", headers={"Idempotency-Key": "once"})
        assert answer.status_code == 200
    found = [(row["action"], row["object"], json.loads(row["details"])) for row in entries(gateway, merchant)]
    assert found == [
        ("refund.approved", approved["id"], {"amount": "10.00", "requested_by": approved["requested_by"]}),
        ("refund.rejected", rejected["id"], {"reason": "Not ours."}),
        ("refund.approved", again["id"], {"amount": "1.00", "requested_by": again["requested_by"]}),
    ]


def test_erasing_a_customer_is_recorded_by_its_id_alone_and_a_refused_erasure_never(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    person = {"name": "Hirut Bekele", "email": "hirut@example.et", "phone": "+251911223344"}
    by_key, by_hand, kept = (api.post("/customers", json=person).json()["data"] for _ in range(3))
    payment = created(api, customer={"id": kept["id"], "phone": person["phone"]})
    prompt = {"mobile_money_provider": "telebirr", "phone": person["phone"]}
    assert api.post(f"/payments/{payment['id']}/charge", json=prompt).status_code == 200
    demand_refusal(api.delete(f"/customers/{kept['id']}"), 409, "invalid_state")
    with closing(signed_in(gateway, merchant)) as admin:
        assert api.delete(f"/customers/{by_key['id']}").status_code == 200
        assert admin.sends(f"/dashboard/sandbox/customers/{by_hand['id']}/erase").status_code == 303
        demand_refusal(api.delete(f"/customers/{by_hand['id']}"), 404, "resource_not_found")
        log_page = admin.get("/dashboard/sandbox/settings/audit-log?action=customer.erased")
    found = [row for row in entries(gateway, merchant) if row["action"] == "customer.erased"]
    assert [(row["object"], json.loads(row["details"])) for row in found] == [(by_key["id"], {}), (by_hand["id"], {})]
    assert [row["actor_kind"] for row in found] == ["user", "user"]
    assert len({row["key_id"] for row in found}) == 2  # the key of the API, and the dashboard's session
    assert by_key["id"] in text_of(log_page)
    assert by_hand["id"] in text_of(log_page)


def test_entries_written_by_many_at_once_are_sealed_in_one_chain(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    asked = [refund(api, completed(merchant)) for _ in range(12)]
    answers = at_once(12, lambda n: merchant.client().post(f"/refunds/{asked[n]['id']}/approve"))
    assert {answer.status_code for answer in answers} == {200}

    def numbers() -> list[int | None]:
        return sorted((row["number"] for row in entries(gateway, merchant)), key=lambda number: number or 0)

    assert eventually(lambda: numbers() == list(range(1, 13)), seconds=15)
    decide(api, refund(api, completed(merchant)), "reject")
    assert eventually(lambda: numbers() == list(range(1, 14)), seconds=15)
    (check,) = [
        check
        for check in json.loads(zembil(gateway, "verify", "--json").stdout)["checks"]
        if "audit log" in check["name"]
    ]
    assert check["wrong"] == 0
    assert "audit.sealed" in gateway.log.read_text()


@contextmanager
def a_database_of_its_own(gateway: Gateway) -> Generator[str]:
    """A database whose owner is no superuser, as a managed PostgreSQL gives one; its URL."""
    query(gateway, "CREATE ROLE shopkeeper LOGIN PASSWORD 'secret'")
    query(gateway, "CREATE DATABASE shop OWNER shopkeeper")
    parts = urlsplit(gateway.database_url)
    host = parts.netloc.rpartition("@")[2]
    try:
        yield parts._replace(netloc=f"shopkeeper:secret@{host}", path="/shop").geturl()
    finally:
        query(gateway, "DROP DATABASE shop WITH (FORCE)")
        query(gateway, "DROP ROLE shopkeeper")


def test_an_ordinary_user_of_the_database_can_add_and_seal_entries_and_never_change_one(gateway: Gateway) -> None:
    async def add_and_change(database_url: str) -> None:
        await migrate(database_url)
        operator = Actor(ActorKind.OPERATOR, "abebe")
        async with connected(database_url, connections_max=2) as db:
            clock = Clock()
            await clock.measure(db)
            await create_merchant(db, "Shop", at=clock.now())
            async with transaction(db) as conn:
                account_id: int = await conn.fetchval("SELECT min(id) FROM accounts")
                for number in range(3):
                    action = AuditAction.CHARGE_RESOLVED
                    at = clock.now() + timedelta(milliseconds=number)  # those of one millisecond have no order
                    await audit(conn, account_id, operator, action, f"chg_{number}", at=at, reason="ቡና")
            await seal_audit_log(db)
            for forbidden in (
                "UPDATE audit_entries SET actor = 'x'",
                "DELETE FROM audit_entries",
                "TRUNCATE audit_entries",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    async with transaction(db) as conn:
                        await conn.execute(forbidden)
            async with transaction(db) as conn:
                rows = await conn.fetch("SELECT number, object FROM audit_entries ORDER BY number")
                assert [(row["number"], row["object"]) for row in rows] == [(1, "chg_0"), (2, "chg_1"), (3, "chg_2")]
        assert [verdict.first_wrong for verdict in await verify(database_url) if verdict.mismatch] == []

    with a_database_of_its_own(gateway) as database_url:
        asyncio.run(add_and_change(database_url))
