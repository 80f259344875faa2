"""What is done with endpoints."""

import uuid
from datetime import datetime

from zembil import ids
from zembil.accounts import secrets
from zembil.accounts.model import Account
from zembil.db.pool import Database, transaction
from zembil.errors import Fault, ValidationError
from zembil.webhooks import queries
from zembil.webhooks.model import Endpoint


def secret_binding(account_id: int, endpoint_id: uuid.UUID) -> str:
    """What a sealed secret is bound to: its own row and no other."""
    return f"webhook_endpoints|{account_id}|{endpoint_id}"


async def register_endpoint(
    db: Database,
    account: Account,
    *,
    url: str,
    events: tuple[str, ...],
    description: str | None,
    secret_key: bytes,
    endpoints_max: int,
    at: datetime,
) -> tuple[Endpoint, str]:
    """Register an endpoint; answers it with its signing secret, which is readable this once."""
    endpoint_id = ids.new_id(account.now(at))
    secret = secrets.new_signing_secret()
    sealed = secrets.seal(secret_key, secret, bound_to=secret_binding(account.id, endpoint_id))
    endpoint = Endpoint(account.id, endpoint_id, url, events, description, sealed)
    async with transaction(db) as conn:
        if not await queries.insert_endpoint(conn, endpoint, endpoints_max=endpoints_max):
            raise ValidationError(
                Fault("url", f"This account has {endpoints_max} endpoints already; delete one that is no longer used.")
            )
    return endpoint, secret
