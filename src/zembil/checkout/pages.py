"""The addresses for people: /, and /p/{token} with the forms on it."""

import hashlib
import hmac
from dataclasses import dataclass, replace
from importlib.resources import files

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from zembil import ids, rail_notifications
from zembil.accounts.model import Account
from zembil.accounts.queries import find_account
from zembil.checkout import view
from zembil.checkout.view import Form
from zembil.config import Settings
from zembil.db.pool import reading
from zembil.errors import ApiError, InvalidState, RateLimitExceeded, ResourceNotFound
from zembil.payments import operations, queries
from zembil.payments.charger import Charger
from zembil.payments.model import CancellationReason, Charge, Payment, link, link_prefix
from zembil.qr import LinkCodes
from zembil.rails import wallets
from zembil.rails.rail import Wallet
from zembil.rails.sandbox import HandsetAnswer, HandsetNotification
from zembil.web.fields import check_phone
from zembil.web.html import PAGE_HEADERS, form_token, own_form

_STYLESHEET = files("zembil.checkout").joinpath("static", "payment.css").read_bytes()
STYLESHEET_PATH = f"/static/payment-{hashlib.sha256(_STYLESHEET).hexdigest()[:12]}.css"

ExtraHeaders = tuple[tuple[str, str], ...]

_templates = Environment(
    loader=PackageLoader("zembil.checkout"),
    autoescape=True,
    extensions=["jinja2.ext.i18n"],
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.install_null_translations(newstyle=True)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a link opens."""

    account: Account
    payment: Payment
    charge: Charge | None


@dataclass(frozen=True, slots=True)
class PaymentPages:
    """The pages behind payment links."""

    charger: Charger
    settings: Settings
    codes: LinkCodes

    def routes(self) -> list[Route]:
        forms = {"charge": self.charge, "cancel": self.cancel, "handset": self.answer_handset}
        return [
            Route("/", self.home),
            Route(STYLESHEET_PATH, stylesheet),
            Route("/p/{token}", self.show),
            *(Route(f"/p/{{token}}/{name}", answer, methods=["POST"]) for name, answer in forms.items()),
            *(Route(f"/p/{{token}}/{name}", self.reopen) for name in forms),
        ]

    async def home(self, _: Request) -> Response:
        """For a newcomer who has no payment link: what this is, and where to go on. It names nothing confidential."""
        page = {
            **self._every_page(),
            "link_prefix": link_prefix(self.settings.public_url),
            "sandbox_url": self.settings.base_url(livemode=False),
            "live_url": self.settings.base_url(livemode=True),
        }
        return _rendered("home.html", page, status=200)

    async def reopen(self, request: Request) -> Response:
        """A form's address opened as a page, as a phone does that restores its tabs: the payment is what was meant."""
        token: str = request.path_params["token"]
        if ids.parsed_link_token(token) is None:
            raise ResourceNotFound
        return _sent_to_payment(token)

    async def show(self, request: Request) -> Response:
        return self._page(await self._open(request))

    async def charge(self, request: Request) -> Response:
        opened = await self._open(request)
        fields = await self._form(request, opened)
        form = Form(fields.get("phone", ""), fields.get("mobile_money_provider", ""))
        phone = view.international(form.phone)
        if faulty := _with_its_fault(form, phone, livemode=opened.account.livemode):
            return self._page(opened, faulty, status=400)
        try:
            await self.charger.charge_payment(
                opened.account, opened.payment, Wallet(form.mobile_money_provider), phone=phone, pushed=False
            )
        except RateLimitExceeded as error:
            faulty = replace(form, error=error.message, error_field="phone")
            return self._page(opened, faulty, status=error.status, headers=error.headers)
        except InvalidState:
            pass  # another tab was first, or the time is over: the page says how it stands
        return self._back(opened)

    async def cancel(self, request: Request) -> Response:
        opened = await self._open(request)
        await self._form(request, opened)
        try:
            await operations.cancel_payment(
                self.charger.db,
                opened.account,
                opened.payment.id,
                CancellationReason.CUSTOMER,
                public_url=self.settings.public_url,
                at=self.charger.clock.now(),
            )
            self.charger.bell.ring()
        except InvalidState:
            pass
        return self._back(opened)

    async def answer_handset(self, request: Request) -> Response:
        """The simulated phone of a sandbox: what is pressed there reaches us as a network's notification would."""
        opened = await self._open(request)
        fields = await self._form(request, opened)
        answer = fields.get("answer", "")
        if opened.account.livemode or answer not in list(HandsetAnswer):
            raise ResourceNotFound
        if opened.charge is not None and opened.charge.id == opened.payment.open_charge_id:
            notification = HandsetNotification(opened.charge.id, HandsetAnswer(answer))
            await rail_notifications.receive(
                self.charger, opened.account, opened.charge.rail, msgspec.json.encode(notification)
            )
        return self._back(opened)

    async def _open(self, request: Request) -> _Opened:
        """What the link opens. Raises ResourceNotFound for a link that is not exactly ours."""
        token = ids.parsed_link_token(request.path_params["token"])
        if token is None:
            raise ResourceNotFound
        account_id, payment_id, secret = token
        async with reading(self.charger.db) as conn:
            payment = await queries.find_payment(conn, account_id, payment_id)
            if payment is None or not hmac.compare_digest(payment.link_secret, secret):
                raise ResourceNotFound
            charge = await queries.find_last_charge(conn, account_id, payment_id)
            account = await find_account(conn, account_id)
        if account is None:
            raise ResourceNotFound
        return _Opened(account, payment, charge)

    async def _form(self, request: Request, opened: _Opened) -> dict[str, str]:
        return await own_form(
            request, self.settings.secret_key, opened.payment.link_token, public_url=self.settings.public_url
        )

    def _page(
        self, opened: _Opened, form: Form | None = None, *, status: int = 200, headers: ExtraHeaders = ()
    ) -> Response:
        page = view.page_of(
            opened.payment,
            opened.charge,
            opened.account,
            at=opened.account.now(self.charger.clock.now()),
            title=self.settings.title,
            public_url=self.settings.public_url,
            stylesheet_path=STYLESHEET_PATH,
            qr_data_uri=self.codes.png_data_uri(link(opened.payment, self.settings.public_url)),
            form_token=form_token(self.settings.secret_key, opened.payment.link_token),
            form=form,
        )
        return _rendered("payment.html", page, status=status, headers=headers)

    def _back(self, opened: _Opened) -> Response:
        return _sent_to_payment(opened.payment.link_token)

    async def refused(self, request: Request, error: Exception) -> Response:
        """The page for a request that cannot be answered: it says why in words, and the way on."""
        status, headers = (error.status, error.headers) if isinstance(error, ApiError) else (500, ())
        page: dict[str, object] = {**self._every_page(), "status": status}
        token = request.path_params.get("token", "")
        if ids.parsed_link_token(token):
            page["payment_path"] = f"/p/{token}"
        template = "unavailable.html" if status >= 500 else "not_found.html" if status == 404 else "refused.html"
        return _rendered(template, page, status=status, headers=headers)

    def _every_page(self) -> dict[str, object]:
        return {"service_name": self.settings.title, "stylesheet_path": STYLESHEET_PATH}


async def stylesheet(_: Request) -> Response:
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(_STYLESHEET, media_type="text/css", headers=headers)


def _rendered(template: str, page: object, *, status: int, headers: ExtraHeaders = ()) -> Response:
    html = _templates.get_template(template).render(page=page)
    return HTMLResponse(html, status_code=status, headers={**PAGE_HEADERS, **dict(headers)})


def _sent_to_payment(link_token: str) -> Response:
    return RedirectResponse(f"/p/{link_token}", status_code=303, headers=PAGE_HEADERS)


def _with_its_fault(form: Form, phone: str, *, livemode: bool) -> Form | None:
    """The form with the first thing wrong in it, or None if it is right."""
    if form.mobile_money_provider not in wallets(livemode=livemode):
        return Form(form.phone, "", "Choose the wallet you pay with.", "mobile_money_provider")
    if any(check_phone(phone)):
        return replace(form, error="This is not a phone number; write it as 0911 234 567.", error_field="phone")
    return None
