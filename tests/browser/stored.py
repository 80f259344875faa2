"""What is stored of a payment, found by its link."""

from typing import Any, LiteralString, cast

from tests.support.gateway import Gateway
from zembil import ids
from zembil.db.pool import connection


async def rows(gateway: Gateway, link: str, statement: LiteralString) -> list[dict[str, Any]]:
    """The rows of a statement; $1 and $2 are the payment's account and id."""
    token = ids.parsed_link_token(link.rpartition("/")[2])
    assert token is not None
    account_id, payment_id, _ = token
    async with connection(gateway.database_url) as conn:
        return [dict(cast(Any, row)) for row in await conn.fetch(statement, account_id, payment_id)]


async def charge_states(gateway: Gateway, link: str) -> list[str]:
    """How each charge of a payment stands, the first one first."""
    charges = await rows(
        gateway, link, "SELECT state FROM charges WHERE account_id = $1 AND payment_id = $2 ORDER BY id"
    )
    return [charge["state"] for charge in charges]
