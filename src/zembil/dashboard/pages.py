"""The whole dashboard: every area's pages, and what is said where there is none."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zembil.accounts.passwords import Passwords
from zembil.dashboard.account import AccountPages
from zembil.dashboard.api_keys import ApiKeyPages
from zembil.dashboard.audit_log import AuditLogPages
from zembil.dashboard.balance import BalancePages
from zembil.dashboard.customers import CustomerPages
from zembil.dashboard.deliveries import DeliveryPages
from zembil.dashboard.events import EventPages
from zembil.dashboard.home import HomePages
from zembil.dashboard.inbox import InboxPages
from zembil.dashboard.payments import PaymentPages
from zembil.dashboard.refunds import RefundPages
from zembil.dashboard.rendering import static_routes
from zembil.dashboard.requests import RequestLogPages
from zembil.dashboard.sign_in import SignInPages
from zembil.dashboard.team import TeamPages
from zembil.dashboard.visits import ROOT, Doorkeeper
from zembil.dashboard.webhooks import WebhookPages
from zembil.dashboard.your_account import YourAccountPages
from zembil.payments.charger import Charger
from zembil.web.auth import KeyRing


@dataclass(frozen=True, slots=True)
class Dashboard:
    door: Doorkeeper
    areas: tuple[Route, ...]

    @classmethod
    def make(cls, charger: Charger, key_ring: KeyRing) -> "Dashboard":
        door, hasher = Doorkeeper(charger.db, charger.clock, charger.settings), Passwords()
        inbox = InboxPages(door)
        routes = [
            *HomePages(door).routes(),
            *PaymentPages(door, charger).routes(),
            *RefundPages(door, charger.bell).routes(),
            *CustomerPages(door, charger.bell).routes(),
            *BalancePages(door, charger).routes(),
            *EventPages(door).routes(),
            *ApiKeyPages(door, key_ring).routes(),
            *DeliveryPages(door, charger.bell).routes(),
            *WebhookPages(door, charger.bell).routes(),
            *TeamPages(door).routes(),
            *AccountPages(door, key_ring).routes(),
            *inbox.routes(),
            *AuditLogPages(door).routes(),
            *RequestLogPages(door).routes(),
            *YourAccountPages(door, hasher).routes(),
        ]
        return cls(
            door, (*static_routes(), *SignInPages(door, hasher).routes(), inbox.receiver(), *door.http_routes(routes))
        )

    def routes(self) -> list[Route]:
        return list(self.areas)

    def has(self, request: Request) -> bool:
        """Whether the address is one of the dashboard's, there or not."""
        return request.url.path == ROOT or request.url.path.startswith(f"{ROOT}/")

    async def refused(self, request: Request, error: Exception) -> Response:
        """The page for a request that led nowhere."""
        return self.door.refused(request, error)
