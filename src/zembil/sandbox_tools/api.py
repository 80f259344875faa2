"""GET and POST /test/clock; only under the sandbox's base address."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Struct

from zembil import instants
from zembil.accounts.permissions import Permission
from zembil.db.pool import Database
from zembil.sandbox_tools import operations
from zembil.web.auth import KeyRing
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body

_ADVANCE_SECONDS_MAX = 31622400


class AdvanceClock(Struct, frozen=True):
    """The body of POST /test/clock."""

    advance_seconds: Annotated[
        int, must(f"Give whole seconds from 1 to {_ADVANCE_SECONDS_MAX}.", ge=1, le=_ADVANCE_SECONDS_MAX)
    ]


@dataclass(frozen=True, slots=True)
class SandboxEndpoints:
    """The endpoints of the API that only a sandbox has."""

    db: Database
    key_ring: KeyRing

    def routes(self) -> list[Route]:
        tools = Permission.USE_SANDBOX_TOOLS
        return [
            Route("GET", "/test/clock", tools, self.read_clock, sandbox_only=True),
            Route("POST", "/test/clock", tools, self.advance_clock, sandbox_only=True),
        ]

    async def read_clock(self, call: Call) -> Answer:
        return success({"now": instants.shown(call.account_at)})

    async def advance_clock(self, call: Call) -> Answer:
        asked = parsed_body(AdvanceClock, call.body)
        now = await operations.advance_clock(self.db, call.account, seconds=asked.advance_seconds, at=call.at)
        self.key_ring.forget()
        return success({"now": instants.shown(now)})
