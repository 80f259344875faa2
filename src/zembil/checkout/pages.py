"""The addresses for people: /, /p/{token} with the forms on it, and /r/{token}, the receipt."""

import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zembil import ids, rail_notifications
from zembil.accounts.model import Account
from zembil.accounts.queries import find_account
from zembil.checkout import view
from zembil.checkout.live import TooManyStreams, Watchers
from zembil.checkout.queries import Key, find_standing
from zembil.checkout.rendering import SCRIPT, STYLESHEET, ExtraHeaders, Reader, reader_of, rendered, sent_to
from zembil.checkout.standing import Standing
from zembil.checkout.view import Form, Message
from zembil.config import Settings
from zembil.db.pool import reading
from zembil.errors import ApiError, InvalidState, RateLimitExceeded, ResourceNotFound
from zembil.payments import operations, queries
from zembil.payments.charger import Charger
from zembil.payments.model import CancellationReason, Charge, Payment, PaymentStatus, link_prefix
from zembil.qr import LinkCodes
from zembil.rails import wallets
from zembil.rails.rail import Wallet
from zembil.rails.sandbox import HandsetAnswer, HandsetNotification
from zembil.web.fields import check_phone, international
from zembil.web.html import PAGE_HEADERS, form_token, own_form

_EVENT_HEADERS = {**PAGE_HEADERS, "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a link opens, and for whom."""

    account: Account
    payment: Payment
    charge: Charge | None
    reader: Reader

    @property
    def path(self) -> str:
        return f"/p/{self.payment.link_token}{self.reader.query}"


@dataclass(frozen=True, slots=True)
class PaymentPages:
    """The pages behind payment links."""

    charger: Charger
    settings: Settings
    codes: LinkCodes
    watchers: Watchers

    def routes(self) -> list[Route]:
        forms: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "charge": self.charge,
            "resend": self.resend,
            "cancel": self.cancel,
            "handset": self.answer_handset,
            "expire": self.expire,
        }
        return [
            Route("/", self.home),
            STYLESHEET.route(),
            SCRIPT.route(),
            Route("/p/{token}", self.show),
            Route("/p/{token}/status", self.status),
            Route("/p/{token}/events", self.events),
            Route("/p/{token}/qr.png", self.png),
            Route("/p/{token}/qr.svg", self.svg),
            Route("/r/{token}", self.receipt),
            *(Route(f"/p/{{token}}/{name}", answer, methods=["POST"]) for name, answer in forms.items()),
            *(Route(f"/p/{{token}}/{name}", self.reopen) for name in forms),
        ]

    async def home(self, request: Request) -> Response:
        """For a newcomer who has no payment link: what this is, and where to go on. It names nothing confidential."""
        reader = reader_of(request)
        page = replace(
            self._message(reader, here="/"),
            link_prefix=link_prefix(self.settings.public_url),
            sandbox_url=self.settings.base_url(livemode=False),
            live_url=self.settings.base_url(livemode=True),
        )
        return rendered("home.html", page, reader)

    async def reopen(self, request: Request) -> Response:
        """A form's address opened as a page, as a phone does that restores its tabs: the payment is what was meant."""
        token: str = request.path_params["token"]
        if ids.parsed_link_token(token) is None:
            raise ResourceNotFound
        return sent_to(f"/p/{token}{reader_of(request).query}")

    async def show(self, request: Request) -> Response:
        return self._page(await self._open(request))

    async def charge(self, request: Request) -> Response:
        opened = await self._open(request)
        fields = await self._form(request, opened)
        form = Form(fields.get("phone", ""), fields.get("mobile_money_provider", ""))
        phone = international(form.phone)
        if faulty := _with_its_fault(form, phone, opened):
            return self._page(opened, faulty, status=400)
        try:
            await self.charger.charge_payment(
                opened.account, opened.payment, Wallet(form.mobile_money_provider), phone=phone, pushed=False
            )
        except RateLimitExceeded as error:
            faulty = replace(form, error=_asked_often(opened.reader), error_field="phone")
            return self._page(opened, faulty, status=error.status, headers=error.headers)
        except InvalidState:
            pass  # another tab was first, or the time is over: the page says how it stands
        return sent_to(opened.path)

    async def resend(self, request: Request) -> Response:
        """Ask on the phone once more. There is never a second prompt that can be paid beside the first."""
        opened = await self._open(request)
        await self._form(request, opened)
        if opened.charge is None or not self._may_resend(opened):
            return sent_to(opened.path)
        try:
            was_taken_back = await self.charger.prompt_again(opened.account, opened.payment, opened.charge)
        except RateLimitExceeded as error:
            notice = _asked_often(opened.reader)
            return self._page(await self._open(request), notice=notice, status=error.status, headers=error.headers)
        except InvalidState:
            return sent_to(opened.path)
        if was_taken_back:
            return sent_to(opened.path)
        said = opened.reader.language.gettext(
            "%(provider)s did not take back its first request, and with two of them you could pay twice. "
            "Answer the first one on your phone, or wait until it ends by itself."
        )
        notice = said % {"provider": opened.charge.rail.brand}
        return self._page(await self._open(request), notice=notice, status=409)

    def _may_resend(self, opened: _Opened) -> bool:
        now = opened.account.now(self.charger.clock.now())
        return view.resend_after(opened.payment, opened.charge, at=now) == 0

    async def cancel(self, request: Request) -> Response:
        opened = await self._open(request)
        await self._form(request, opened)
        return await self._ended(opened, CancellationReason.CUSTOMER)

    async def expire(self, request: Request) -> Response:
        """Let a sandbox payment end as if its time had run out."""
        opened = await self._open(request)
        await self._form(request, opened)
        if opened.account.livemode:
            raise ResourceNotFound
        return await self._ended(opened, CancellationReason.EXPIRED)

    async def _ended(self, opened: _Opened, reason: CancellationReason) -> Response:
        try:
            await operations.cancel_payment(
                self.charger.db,
                opened.account,
                opened.payment.id,
                reason,
                public_url=self.settings.public_url,
                at=self.charger.clock.now(),
            )
            self.charger.bell.ring()
        except InvalidState:
            pass
        return sent_to(opened.path)

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
        return sent_to(opened.path)

    async def status(self, request: Request) -> Response:
        """How the payment stands, for pages that cannot be told: its version, which is the ETag too."""
        _, standing = await self._standing(request)
        etag = f'"{standing.version}"'
        headers = {**PAGE_HEADERS, "ETag": etag}
        if etag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        return JSONResponse({"version": standing.version, "status": standing.status}, headers=headers)

    async def events(self, request: Request) -> Response:
        """The payment's versions as they come. A page that cannot be told is refused, and asks instead."""
        key, standing = await self._standing(request)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=_EVENT_HEADERS)
        try:
            stream = self.watchers.stream(key, standing)
            first = await anext(stream)
        except TooManyStreams:
            return Response(status_code=503, headers={**_EVENT_HEADERS, "Retry-After": "60"})

        async def told() -> AsyncGenerator[bytes]:
            try:
                yield first
                async for event in stream:
                    yield event
            finally:
                await stream.aclose()

        return StreamingResponse(told(), media_type="text/event-stream", headers=_EVENT_HEADERS)

    async def png(self, request: Request) -> Response:
        return await self._drawn(request, "image/png", self.codes.png)

    async def svg(self, request: Request) -> Response:
        return await self._drawn(request, "image/svg+xml", self.codes.svg)

    async def _drawn(self, request: Request, media_type: str, draw: Callable[[str], bytes]) -> Response:
        await self._standing(request)
        drawn = draw(link_prefix(self.settings.public_url) + request.path_params["token"])
        return Response(drawn, media_type=media_type, headers=PAGE_HEADERS)

    async def receipt(self, request: Request) -> Response:
        """What was paid, by a link of its own: who has it sees neither the phone nor the payment's page."""
        reader = reader_of(request)
        key, secret = _parsed(request)
        async with reading(self.charger.db) as conn:
            payment = await queries.find_payment(conn, *key)
            if (
                payment is None
                or payment.status is not PaymentStatus.COMPLETED
                or not hmac.compare_digest(payment.receipt_secret, secret)
            ):
                raise ResourceNotFound
            charge = await queries.find_paid_charge(conn, *key)
            account = await find_account(conn, key[0])
        if account is None or charge is None:
            raise ResourceNotFound
        page = view.receipt_of(payment, charge, account, reader, title=self.settings.title)
        return rendered("receipt.html", page, reader)

    async def _open(self, request: Request) -> _Opened:
        """What the link opens. Raises ResourceNotFound for a link that is not exactly ours."""
        key, secret = _parsed(request)
        async with reading(self.charger.db) as conn:
            found = await queries.find_payment_and_charge(conn, *key)
            if found is None or not hmac.compare_digest(found[0].link_secret, secret):
                raise ResourceNotFound
            account = await find_account(conn, key[0])
        if account is None:
            raise ResourceNotFound
        return _Opened(account, *found, reader_of(request))

    async def _standing(self, request: Request) -> tuple[Key, Standing]:
        """How the payment of a link stands. Raises ResourceNotFound for a link that is not exactly ours."""
        key, secret = _parsed(request)
        async with reading(self.charger.db) as conn:
            found = await find_standing(conn, key)
        if found is None or not hmac.compare_digest(found[1], secret):
            raise ResourceNotFound
        return key, found[0]

    async def _form(self, request: Request, opened: _Opened) -> dict[str, str]:
        return await own_form(
            request, self.settings.secret_key, opened.payment.link_token, public_url=self.settings.public_url
        )

    def _page(
        self,
        opened: _Opened,
        form: Form | None = None,
        *,
        notice: str | None = None,
        status: int = 200,
        headers: ExtraHeaders = (),
    ) -> Response:
        page = view.page_of(
            opened.payment,
            opened.charge,
            opened.account,
            opened.reader,
            at=opened.account.now(self.charger.clock.now()),
            title=self.settings.title,
            public_url=self.settings.public_url,
            form_token=form_token(self.settings.secret_key, opened.payment.link_token),
            form=form,
            notice=notice,
        )
        return rendered("payment.html", page, opened.reader, status=status, headers=headers)

    async def refused(self, request: Request, error: Exception) -> Response:
        """The page for a request that cannot be answered: it says why in words, and the way on."""
        status, headers = (error.status, error.headers) if isinstance(error, ApiError) else (500, ())
        reader = reader_of(request)
        token = request.path_params.get("token", "")
        path = f"/p/{token}" if ids.parsed_link_token(token) and request.url.path.startswith("/p/") else None
        page = replace(self._message(reader, here=path or ""), status=status, payment_path=path)
        template = "unavailable.html" if status >= 500 else "not_found.html" if status == 404 else "refused.html"
        return rendered(template, page, reader, status=status, headers=headers)

    def _message(self, reader: Reader, *, here: str) -> Message:
        return Message(
            service_name=self.settings.title,
            language=reader.language.code,
            other_language=reader.other_language,
            here=here,
            query=reader.query,
        )


def _parsed(request: Request) -> tuple[Key, bytes]:
    """The payment and the secret of the link. Raises ResourceNotFound for what is no link of ours."""
    token = ids.parsed_link_token(request.path_params["token"])
    if token is None:
        raise ResourceNotFound
    account_id, payment_id, secret = token
    return (account_id, payment_id), secret


def _with_its_fault(form: Form, phone: str, opened: _Opened) -> Form | None:
    """The form with the first thing wrong in it, or None if it is right."""
    gettext = opened.reader.language.gettext
    if form.mobile_money_provider not in wallets(livemode=opened.account.livemode):
        error = gettext("Choose the wallet you pay with.")
        return Form(form.phone, view.wallet_of(phone), error, "mobile_money_provider")
    if any(check_phone(phone)):
        error = gettext("This is not a phone number; write it as 0911 234 567.")
        return replace(form, error=error, error_field="phone")
    return None


def _asked_often(reader: Reader) -> str:
    return reader.language.gettext(
        "This phone was asked three times within 10 minutes; wait a little before it is asked again."
    )
