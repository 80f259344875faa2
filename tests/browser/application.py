"""The application in the test's own process, for what a running gateway cannot be made to show."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2

from zembil.app import application
from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.pool import connected
from zembil.webhooks.sender import Bell


@asynccontextmanager
async def without_a_database() -> AsyncGenerator[httpx2.AsyncClient]:
    """The application while its database is away."""
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    settings = Settings(database_url=nowhere, secret_key=bytes(32))
    async with (
        connected(nowhere, connections_max=1) as db,
        application(db, Clock(), settings, Bell(), asyncio.Event()) as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client,
    ):
        yield client
