"""What is done with merchants and accounts."""

import uuid
from datetime import datetime

from zembil import ids
from zembil.accounts import queries, secrets
from zembil.accounts.model import AccountKeys, NewMerchant, Role
from zembil.db.pool import Connection, Database, transaction


async def create_merchant(db: Database, name: str, *, at: datetime) -> NewMerchant:
    """Create a merchant with a sandbox and a live account and a key of each role in both."""
    merchant_id = ids.new_id(at)
    async with transaction(db) as conn:
        await queries.insert_merchant(conn, merchant_id, name)
        sandbox = await _open_account(conn, merchant_id, livemode=False, at=at)
        live = await _open_account(conn, merchant_id, livemode=True, at=at)
    return NewMerchant(merchant_id, sandbox, live)


async def _open_account(conn: Connection, merchant_id: uuid.UUID, *, livemode: bool, at: datetime) -> AccountKeys:
    account_id = await queries.insert_account(conn, merchant_id, livemode=livemode)
    keys: dict[Role, str] = {}
    for role in Role:
        keys[role] = key = secrets.new_api_key(livemode=livemode)
        await queries.insert_api_key(
            conn,
            key_id=ids.new_id(at),
            account_id=account_id,
            secret_hash=secrets.hashed(key),
            name=f"First {role.value.replace('_', '-')} key",
            role=role,
            last_four=key[-4:],
        )
    return AccountKeys(keys[Role.ADMIN], keys[Role.DEVELOPER], keys[Role.READ_ONLY])
