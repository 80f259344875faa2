"""What is done with a sandbox."""

from datetime import UTC, datetime, timedelta

from zembil.accounts.model import Account
from zembil.accounts.queries import update_clock
from zembil.db.pool import Connection
from zembil.errors import Fault, ValidationError
from zembil.payments import queries as payments
from zembil.refunds import queries as refunds
from zembil.webhooks import queries as webhooks

_LATEST = datetime(2999, 1, 1, tzinfo=UTC)


async def advance_clock(conn: Connection, account: Account, *, seconds: int, at: datetime) -> datetime:
    """Move the account's clock forward, and with it all that the account waits for; answers the account's new time."""
    by = timedelta(seconds=seconds)
    offset = await update_clock(conn, account.id, advance_seconds=seconds)
    if at + offset > _LATEST:
        raise ValidationError(Fault("advance_seconds", "The sandbox clock ends in the year 2999."))
    await payments.advance_due_times(conn, account.id, by=by)
    await refunds.advance_due_times(conn, account.id, by=by)
    await webhooks.advance_due_times(conn, account.id, by=by)
    return at + offset
