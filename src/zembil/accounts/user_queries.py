"""SQL for people: users, sessions, links that work once, failed sign-ins. What ends, ends by the database's time."""

import uuid
from datetime import datetime, timedelta

from zembil.accounts.model import LinkKind, Role, Session, User
from zembil.db.pool import Connection, Record

_COLUMNS = """
    u.id, u.merchant_id, m.name AS merchant_name, u.name, u.role, u.email, u.password_hash, u.sealed_totp, u.totp_since,
    u.totp_locked_until
"""
_USER = _COLUMNS + " FROM users u JOIN merchants m ON m.id = u.merchant_id "


async def find_user(conn: Connection, user_id: uuid.UUID) -> User | None:
    row = await conn.fetchrow("SELECT" + _USER + "WHERE u.id = $1 AND u.removed_at IS NULL", user_id)
    return None if row is None else _user(row)


async def find_user_by_email(conn: Connection, email: str) -> User | None:
    row = await conn.fetchrow("SELECT" + _USER + "WHERE u.email = $1 AND u.removed_at IS NULL", email)
    return None if row is None else _user(row)


async def lock_user(conn: Connection, user_id: uuid.UUID) -> User | None:
    """A user whom nobody else changes until the transaction ends."""
    row = await conn.fetchrow(
        "SELECT" + _USER + "WHERE u.id = $1 AND u.removed_at IS NULL FOR NO KEY UPDATE OF u", user_id
    )
    return None if row is None else _user(row)


async def list_users(conn: Connection, merchant_id: uuid.UUID) -> list[User]:
    rows = await conn.fetch(
        "SELECT" + _USER + "WHERE u.merchant_id = $1 AND u.removed_at IS NULL ORDER BY u.id", merchant_id
    )
    return [_user(row) for row in rows]


async def find_merchants(conn: Connection, name: str, merchant_id: uuid.UUID | None = None) -> list[uuid.UUID]:
    """The merchants of exactly this name; with an id, the one of that id."""
    rows = await conn.fetch(
        "SELECT id FROM merchants WHERE CASE WHEN $2::uuid IS NULL THEN name = $1 ELSE id = $2 END ORDER BY id",
        name,
        merchant_id,
    )
    return [row["id"] for row in rows]


async def lock_merchant(conn: Connection, merchant_id: uuid.UUID) -> None:
    """Who changes a merchant's team does so one after the other."""
    await conn.execute("SELECT 1 FROM merchants WHERE id = $1 FOR NO KEY UPDATE", merchant_id)


async def insert_invited_user(conn: Connection, user: User) -> None:
    await conn.execute(
        "INSERT INTO users (id, merchant_id, name, role, email) VALUES ($1, $2, $3, $4, $5)",
        user.id,
        user.merchant_id,
        user.name,
        user.role.value,
        user.email,
    )


async def update_user(conn: Connection, user_id: uuid.UUID, *, name: str, email: str | None) -> None:
    await conn.execute("UPDATE users SET name = $2, email = $3 WHERE id = $1", user_id, name, email)


async def update_role(conn: Connection, user_id: uuid.UUID, role: Role) -> None:
    await conn.execute("UPDATE users SET role = $2 WHERE id = $1", user_id, role.value)


async def update_password(conn: Connection, user_id: uuid.UUID, password_hash: str) -> None:
    await conn.execute("UPDATE users SET password_hash = $2 WHERE id = $1", user_id, password_hash)


async def mark_removed(conn: Connection, user_id: uuid.UUID) -> None:
    await conn.execute("UPDATE users SET removed_at = now() WHERE id = $1", user_id)


# The second step


async def find_proposed_totp(conn: Connection, session_id: uuid.UUID) -> bytes | None:
    """The sealed secret that waits to be confirmed in a session."""
    sealed: bytes | None = await conn.fetchval("SELECT proposed_totp FROM sessions WHERE id = $1", session_id)
    return sealed


async def update_proposed_totp(conn: Connection, session_id: uuid.UUID, sealed: bytes) -> None:
    await conn.execute("UPDATE sessions SET proposed_totp = $2 WHERE id = $1", session_id, sealed)


async def turn_totp_on(conn: Connection, user_id: uuid.UUID, sealed: bytes) -> None:
    await conn.execute("UPDATE users SET sealed_totp = $2, totp_since = now() WHERE id = $1", user_id, sealed)


async def turn_totp_off(conn: Connection, user_id: uuid.UUID) -> None:
    """Forget the secret; codes that were given count no more."""
    await conn.execute(
        """
        UPDATE users SET sealed_totp = NULL, totp_since = NULL, totp_failed = 0, totp_locked_until = NULL WHERE id = $1
        """,
        user_id,
    )
    await conn.execute("UPDATE sessions SET has_second_step = false WHERE user_id = $1", user_id)


async def accept_step(conn: Connection, user_id: uuid.UUID, step: int) -> bool:
    """Use up the code of a step; False if it, or a later one, was used before."""
    accepted = await conn.fetchval(
        """
        UPDATE users SET totp_last_step = $2, totp_failed = 0, totp_locked_until = NULL
        WHERE id = $1 AND totp_last_step < $2
        RETURNING true
        """,
        user_id,
        step,
    )
    return bool(accepted)


async def record_wrong_code(conn: Connection, user_id: uuid.UUID, *, at_most: int, lock: timedelta) -> bool:
    """Count a wrong code; the last of `at_most` in a row locks the second step for a while: True if this was it."""
    is_locked: bool = await conn.fetchval(
        """
        UPDATE users SET totp_failed = CASE WHEN totp_failed + 1 >= $2 THEN 0 ELSE totp_failed + 1 END,
            totp_locked_until = CASE WHEN totp_failed + 1 >= $2 THEN now() + $3::interval ELSE totp_locked_until END
        WHERE id = $1
        RETURNING totp_failed = 0
        """,
        user_id,
        at_most,
        lock,
    )
    return is_locked


async def replace_recovery_codes(conn: Connection, user_id: uuid.UUID, hashes: list[bytes]) -> None:
    await conn.execute("DELETE FROM recovery_codes WHERE user_id = $1", user_id)
    await conn.execute(
        "INSERT INTO recovery_codes (user_id, code_hash) SELECT $1, unnest($2::bytea[])", user_id, hashes
    )


async def use_recovery_code(conn: Connection, user_id: uuid.UUID, code_hash: bytes) -> bool:
    used = await conn.fetchval(
        "DELETE FROM recovery_codes WHERE user_id = $1 AND code_hash = $2 RETURNING true", user_id, code_hash
    )
    return bool(used)


async def count_recovery_codes(conn: Connection, user_id: uuid.UUID) -> int:
    count: int = await conn.fetchval("SELECT count(*) FROM recovery_codes WHERE user_id = $1", user_id)
    return count


# Sessions

_SESSION = (
    "SELECT s.id AS session_id, s.awaits_code, s.has_second_step, s.address, s.browser, s.seen_at, s.expires_at,"
    + _COLUMNS
    + " FROM sessions s JOIN users u ON u.id = s.user_id JOIN merchants m ON m.id = u.merchant_id "
)


async def insert_session(conn: Connection, session: Session, *, token_hash: bytes, lifetime: timedelta) -> None:
    """Begin a session; those that are over are forgotten."""
    await conn.execute("DELETE FROM sessions WHERE expires_at <= now()")
    await conn.execute(
        """
        INSERT INTO sessions (token_hash, id, user_id, awaits_code, has_second_step, address, browser, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, now() + $8::interval)
        """,
        token_hash,
        session.id,
        session.user.id,
        session.awaits_code,
        session.has_second_step,
        session.address,
        session.browser,
        lifetime,
    )


async def find_session(conn: Connection, token_hash: bytes, *, idle: timedelta) -> Session | None:
    """The session with its user as both are now."""
    row = await conn.fetchrow(
        _SESSION
        + """
        WHERE s.token_hash = $1 AND s.expires_at > now() AND s.seen_at > now() - $2::interval AND u.removed_at IS NULL
        """,
        token_hash,
        idle,
    )
    return None if row is None else _session(row)


async def list_sessions(conn: Connection, user_id: uuid.UUID, *, idle: timedelta) -> list[Session]:
    """Where the user is signed in, latest first."""
    rows = await conn.fetch(
        _SESSION
        + """
        WHERE s.user_id = $1 AND s.expires_at > now() AND s.seen_at > now() - $2::interval AND NOT s.awaits_code
        ORDER BY s.seen_at DESC, s.id DESC
        """,
        user_id,
        idle,
    )
    return [_session(row) for row in rows]


async def record_seen(conn: Connection, session_id: uuid.UUID) -> None:
    await conn.execute("UPDATE sessions SET seen_at = now() WHERE id = $1", session_id)


async def session_stands(conn: Connection, session: Session) -> bool:
    """Whether a session goes on as it was read."""
    stands: bool = await conn.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM sessions WHERE id = $1 AND user_id = $2 AND has_second_step = $3 AND awaits_code = $4
        )
        """,
        session.id,
        session.user.id,
        session.has_second_step,
        session.awaits_code,
    )
    return stands


async def delete_session(conn: Connection, user_id: uuid.UUID, session_id: uuid.UUID) -> bool:
    done = await conn.execute("DELETE FROM sessions WHERE user_id = $1 AND id = $2", user_id, session_id)
    return done == "DELETE 1"


async def delete_sessions(conn: Connection, user_id: uuid.UUID) -> None:
    await conn.execute("DELETE FROM sessions WHERE user_id = $1", user_id)


# Links that work once


async def insert_link(
    conn: Connection, token_hash: bytes, user_id: uuid.UUID, kind: LinkKind, *, lifetime: timedelta
) -> None:
    """Make a link; an earlier one of its kind ends, and so do those that are over."""
    await conn.execute(
        "DELETE FROM user_links WHERE expires_at <= now() OR user_id = $1 AND kind = $2", user_id, kind.value
    )
    await conn.execute(
        "INSERT INTO user_links (token_hash, user_id, kind, expires_at) VALUES ($1, $2, $3, now() + $4::interval)",
        token_hash,
        user_id,
        kind.value,
        lifetime,
    )


async def find_link(conn: Connection, token_hash: bytes) -> tuple[User, LinkKind] | None:
    row = await conn.fetchrow(
        "SELECT l.kind,"
        + _USER
        + """
        JOIN user_links l ON l.user_id = u.id
        WHERE l.token_hash = $1 AND l.expires_at > now() AND u.removed_at IS NULL
        """,
        token_hash,
    )
    return None if row is None else (_user(row), LinkKind(row["kind"]))


async def use_link(conn: Connection, token_hash: bytes) -> bool:
    """Use a link up; False if somebody else was quicker."""
    done = await conn.execute("DELETE FROM user_links WHERE token_hash = $1 AND expires_at > now()", token_hash)
    return done == "DELETE 1"


async def delete_links(conn: Connection, user_id: uuid.UUID) -> None:
    await conn.execute("DELETE FROM user_links WHERE user_id = $1", user_id)


# Failed sign-ins


async def lock_scopes(conn: Connection, scopes: list[bytes]) -> None:
    """Whoever tries in the same scope does so one after the other; everybody asks in the same order."""
    await conn.execute(
        """
        SELECT pg_advisory_xact_lock(hashtextextended(encode(scope, 'hex'), 61))
        FROM unnest($1::bytea[]) WITH ORDINALITY AS s (scope, place) ORDER BY place
        """,
        scopes,
    )


async def failed_sign_ins(conn: Connection, scopes: list[bytes], *, window: timedelta) -> list[tuple[int, float]]:
    """For each scope, how many failed within the window, and in how many seconds the first of them is forgotten."""
    rows = await conn.fetch(
        """
        SELECT count(f.failed_at) AS failed,
            coalesce(extract(epoch FROM min(f.failed_at) + $2::interval - now()), 0)::float8 AS seconds
        FROM unnest($1::bytea[]) WITH ORDINALITY AS s (scope, place)
        LEFT JOIN failed_sign_ins f ON f.scope = s.scope AND f.failed_at > now() - $2::interval
        GROUP BY s.place ORDER BY s.place
        """,
        scopes,
        window,
    )
    return [(row["failed"], row["seconds"]) for row in rows]


async def insert_failed_sign_in(conn: Connection, scopes: list[bytes], *, window: timedelta) -> datetime:
    """Count a try as failed, until it has succeeded; forgets the old ones. Answers when it was, which names it."""
    failed_at: datetime = await conn.fetchval(
        """
        WITH old AS (DELETE FROM failed_sign_ins WHERE failed_at <= now() - $2::interval)
        INSERT INTO failed_sign_ins (scope, failed_at)
        SELECT s.scope, tried.at FROM unnest($1::bytea[]) AS s (scope), (SELECT clock_timestamp() AS at) tried
        RETURNING failed_at
        """,
        scopes,
        window,
    )
    return failed_at


async def forgive(conn: Connection, *, email: bytes, address: bytes, failed_at: datetime) -> None:
    """After a success: nothing counts against the e-mail any more, and this try not against the address."""
    await conn.execute(
        "DELETE FROM failed_sign_ins WHERE scope = $1 OR scope = $2 AND failed_at = $3", email, address, failed_at
    )


def _user(row: Record) -> User:
    return User(
        id=row["id"],
        merchant_id=row["merchant_id"],
        merchant_name=row["merchant_name"],
        name=row["name"],
        role=Role(row["role"]),
        email=row["email"],
        password_hash=row["password_hash"],
        sealed_totp=row["sealed_totp"],
        totp_since=row["totp_since"],
        totp_locked_until=row["totp_locked_until"],
    )


def _session(row: Record) -> Session:
    return Session(
        id=row["session_id"],
        user=_user(row),
        awaits_code=row["awaits_code"],
        has_second_step=row["has_second_step"],
        address=row["address"],
        browser=row["browser"],
        seen_at=row["seen_at"],
        expires_at=row["expires_at"],
    )
