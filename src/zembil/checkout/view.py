"""What the payer's pages show of a payment; the templates read nothing else."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from markupsafe import Markup

from zembil import ids, money
from zembil.accounts.model import Account
from zembil.checkout.languages import Language
from zembil.checkout.rendering import SCRIPT, STYLESHEET, Reader
from zembil.checkout.standing import standing_of
from zembil.ids import Prefix
from zembil.payments.lifecycle import CHARGES_MAX, OPEN_STATES
from zembil.payments.model import FAILURE_MESSAGES, Charge, ChargeState, Payment, PaymentStatus, link
from zembil.rails import wallets
from zembil.rails.rail import Wallet
from zembil.rails.sandbox import SandboxRail
from zembil.telemetry import masked

RESEND_AFTER = timedelta(seconds=30)

_NETWORK_NAMES = {Wallet.TELEBIRR: "Ethio telecom", Wallet.MPESA: "Safaricom"}
_BEGINNINGS = {Wallet.TELEBIRR: "09", Wallet.MPESA: "07"}  # of the numbers of each one's network
_USSD_CODES = {Wallet.TELEBIRR: "*127#", Wallet.MPESA: "*733#"}
_REFRESH_SECONDS = 3
_EXPIRES_SOON = timedelta(minutes=10)
_ETHIOPIAN_TIME = ZoneInfo("Africa/Addis_Ababa")


@dataclass(frozen=True, slots=True)
class Form:
    phone: str = ""
    mobile_money_provider: str = ""
    error: str | None = None
    error_field: str | None = None


@dataclass(frozen=True, slots=True)
class OfferedWallet:
    value: str
    name: str
    network: str
    begins: str  # how the phone numbers of its network begin


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long the payment can be begun; said in words near the end only. In `many` stands 0 for the number."""

    seconds: int
    soon: bool
    text: str
    none: str
    one: str
    many: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stands around every page."""

    service_name: str
    language: str
    other_language: Language
    here: str  # the address of this page, for the link to the other language
    query: str
    stylesheet_path: str = STYLESHEET.path
    script_path: str = SCRIPT.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Frame):
    """A page about no payment."""

    status: int = 200
    payment_path: str | None = None
    link_prefix: str = ""
    sandbox_url: str = ""
    live_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Frame):
    """What a payment's page and its receipt have in common."""

    merchant_name: str
    amount: str
    currency: str
    description: str | None
    sandbox: bool
    refunded: str | None = None
    completed_at: str | None = None
    transaction_id: str | None = None
    provider_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Shown):
    payment_path: str
    payment_link: str
    return_url: str | None
    state: str
    version: str
    watch: str | None
    form_token: str
    form: Form
    wallets: tuple[OfferedWallet, ...]
    notice: str | None = None
    phone: str | None = None
    ussd_link: Markup | None = None
    resend_after: int | None = None  # seconds; None: no other request can be sent
    refresh_seconds: int = _REFRESH_SECONDS
    handset: bool = False
    failure_message: str | None = None
    cancellation_reason: str | None = None
    second_charge_returned: bool = False
    time_left: TimeLeft | None = None
    receipt_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Shown):
    payment_id: str
    reference: str | None
    provider_reference: str | None


def page_state(payment: Payment, charge: Charge | None, *, at: datetime) -> str:
    """The one of the page's states that fits; `charge` is the payment's last."""
    if payment.status is not PaymentStatus.PENDING:
        is_late = charge is not None and charge.state is ChargeState.SURPLUS
        return "late" if is_late and payment.status is not PaymentStatus.COMPLETED else payment.status.value
    if charge is not None and charge.state in OPEN_STATES:
        match charge.state:
            case ChargeState.IN_PROGRESS:
                return "in_progress"
            case ChargeState.IN_DOUBT | ChargeState.NEEDS_REVIEW:
                return "in_doubt"
            case _:
                return "check_phone"
    return "choose" if at < payment.expires_at else "cancelled"


def page_of(
    payment: Payment,
    charge: Charge | None,
    account: Account,
    reader: Reader,
    *,
    at: datetime,
    title: str,
    public_url: str,
    form_token: str,
    form: Form | None = None,
    notice: str | None = None,
) -> Page:
    """The page of a payment at the instant `at` of the account's time."""
    state = page_state(payment, charge, at=at)
    language = reader.language
    path = f"/p/{payment.link_token}"
    shows_phone = charge is not None and state in ("check_phone", "in_progress", "in_doubt")
    return Page(
        service_name=title,
        language=language.code,
        other_language=reader.other_language,
        here=path,
        query=reader.query,
        merchant_name=account.name_in(language.code),
        amount=money.shown(payment.amount_santim),
        currency=money.CURRENCY,
        description=payment.description and masked(payment.description),
        sandbox=not account.livemode,
        refunded=_refunded(payment),
        payment_path=path,
        payment_link=link(payment, public_url),
        return_url=return_url(payment),
        state=state,
        version=standing_of(payment, charge).version,
        watch=_watch(payment, charge),
        form_token=form_token,
        form=form or Form(_as_people_write_it(payment.phone or ""), _suggested_wallet(payment)),
        wallets=tuple(
            OfferedWallet(wallet.value, wallet.brand, _NETWORK_NAMES[wallet], _BEGINNINGS[wallet])
            for wallet in wallets(livemode=account.livemode)
        ),
        notice=notice or (_notice(charge, language) if state == "choose" else None),
        provider_name=charge.rail.brand if charge else None,
        phone=_masked(charge.phone) if charge and shows_phone else None,
        ussd_link=_ussd_link(charge.rail) if charge else None,
        resend_after=resend_after(payment, charge, at=at) if state == "check_phone" else None,
        handset=_needs_a_handset(charge, account, state),
        transaction_id=ids.shown(Prefix.TRANSACTION, payment.transaction_id) if payment.transaction_id else None,
        completed_at=_local_time(payment, language),
        failure_message=language.gettext(FAILURE_MESSAGES[payment.failure_code]) if payment.failure_code else None,
        cancellation_reason=payment.cancellation_reason or ("expired" if state == "cancelled" else None),
        second_charge_returned=charge is not None and charge.state is ChargeState.SURPLUS,
        time_left=_time_left(payment.expires_at - at, language) if state == "choose" else None,
        receipt_path=f"/r/{payment.receipt_token}" if state == "completed" else None,
    )


def receipt_of(payment: Payment, charge: Charge, account: Account, reader: Reader, *, title: str) -> Receipt:
    """The receipt of a completed payment; `charge` is the one that paid it."""
    if payment.transaction_id is None:
        raise ValueError("only a completed payment has a receipt")
    return Receipt(
        service_name=title,
        language=reader.language.code,
        other_language=reader.other_language,
        here=f"/r/{payment.receipt_token}",
        query=reader.query,
        merchant_name=account.name_in(reader.language.code),
        amount=money.shown(payment.amount_santim),
        currency=money.CURRENCY,
        description=payment.description,
        sandbox=not account.livemode,
        refunded=_refunded(payment),
        completed_at=_local_time(payment, reader.language),
        transaction_id=ids.shown(Prefix.TRANSACTION, payment.transaction_id),
        provider_name=charge.rail.brand,
        provider_reference=charge.rail_reference,
        payment_id=ids.shown(Prefix.PAYMENT, payment.id),
        reference=payment.reference,
    )


def return_url(payment: Payment) -> str | None:
    """The merchant's page, told which payment it is about and how it stands; never proof of payment."""
    if payment.callback_url is None:
        return None
    parts = urlsplit(payment.callback_url)
    told = urlencode({"payment_id": ids.shown(Prefix.PAYMENT, payment.id), "status": payment.status.value})
    return urlunsplit(parts._replace(query=f"{parts.query}&{told}" if parts.query else told))


def wallet_of(phone: str) -> str:
    """The wallet of a number's network; "" if it is no Ethiopian mobile number."""
    begins = {f"+251{beginning[1:]}": wallet.value for wallet, beginning in _BEGINNINGS.items()}
    return begins.get(phone[:5], "")


def _as_people_write_it(phone: str) -> str:
    """An Ethiopian number as it is written at home, 0911 234 567; others unchanged."""
    if re.fullmatch(r"\+251[79][0-9]{8}", phone):
        return f"0{phone[4:7]} {phone[7:10]} {phone[10:]}"
    return phone


def _suggested_wallet(payment: Payment) -> str:
    return payment.mobile_money_provider or wallet_of(payment.phone or "")


def _watch(payment: Payment, charge: Charge | None) -> str | None:
    """How closely the page has to follow: money may still come to some that have ended."""
    if payment.status is PaymentStatus.PENDING:
        return "live"
    return "slow" if charge is not None and charge.ask_at is not None else None


def resend_after(payment: Payment, charge: Charge | None, *, at: datetime) -> int | None:
    """In how many seconds another request can be sent, or None if none can."""
    if charge is None or charge.prompted_at is None or charge.state is not ChargeState.AWAITING_CUSTOMER:
        return None
    if payment.charges_sent >= CHARGES_MAX or payment.expires_at <= at:
        return None
    left = charge.prompted_at + RESEND_AFTER - at
    return max(0, -(-left // timedelta(seconds=1)))


def _notice(charge: Charge | None, language: Language) -> str | None:
    """What came of the last try, and what that means for the money."""
    if charge is None or charge.failure_code is None:
        return None
    what, then = FAILURE_MESSAGES[charge.failure_code], language.gettext("Nothing was taken; you can try again.")
    return f"{language.gettext(what)} {then}"


def _needs_a_handset(charge: Charge | None, account: Account, state: str) -> bool:
    return (
        charge is not None
        and not account.livemode
        and state == "check_phone"
        and SandboxRail.waits_for_the_person(charge.phone)
    )


def _ussd_link(wallet: Wallet) -> Markup:
    code = _USSD_CODES[wallet]
    return Markup('<a href="tel:{}" dir="ltr">{}</a>').format(code.replace("#", "%23"), code)


def _masked(phone: str) -> str:
    return f"{phone[:6]} … {phone[-2:]}"


def _refunded(payment: Payment) -> str | None:
    return money.shown(payment.refunded_santim) if payment.refunded_santim else None


def _local_time(payment: Payment, language: Language) -> str | None:
    return language.moment(payment.ended_at.astimezone(_ETHIOPIAN_TIME)) if payment.ended_at else None


def _time_left(left: timedelta, language: Language) -> TimeLeft:
    def about(minutes: int, *, form_for: int) -> str:
        text = language.ngettext(
            "Time left to pay: about %(minutes)d more minute",
            "Time left to pay: about %(minutes)d more minutes",
            form_for,
        )
        return text % {"minutes": minutes}

    seconds = int(left.total_seconds())
    minutes = seconds // 60
    none = language.gettext("Time left to pay: less than a minute")
    text = about(minutes, form_for=minutes) if minutes else none
    return TimeLeft(seconds, left <= _EXPIRES_SOON, text, none, about(1, form_for=1), about(0, form_for=2))
