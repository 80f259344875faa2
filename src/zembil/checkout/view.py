"""What the payment page shows of a payment; its templates read nothing else."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from zembil import ids, money
from zembil.accounts.model import Account
from zembil.ids import Prefix
from zembil.payments.lifecycle import OPEN_STATES
from zembil.payments.model import FAILURE_MESSAGES, Charge, ChargeState, Payment, PaymentStatus, link
from zembil.rails import wallets
from zembil.rails.rail import Wallet
from zembil.rails.sandbox import SandboxRail
from zembil.telemetry import masked

WALLET_NAMES = {Wallet.TELEBIRR: "telebirr", Wallet.MPESA: "M-PESA"}
_NETWORK_NAMES = {Wallet.TELEBIRR: "Ethio telecom", Wallet.MPESA: "Safaricom"}
_REFRESH_SECONDS = 2
_EXPIRES_SOON = timedelta(minutes=10)
_ETHIOPIAN_TIME = ZoneInfo("Africa/Addis_Ababa")
_PHONE_NOISE = re.compile(r"[\s().-]+")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    service_name: str
    language: str
    stylesheet_path: str
    merchant_name: str
    amount: str
    currency: str
    description: str | None
    sandbox: bool
    payment_path: str
    payment_link: str
    qr_data_uri: str
    return_url: str | None
    state: str
    form_token: str
    form: Form
    wallets: tuple[OfferedWallet, ...]
    notice: str | None = None
    provider_name: str | None = None
    phone: str | None = None
    refresh_seconds: int = _REFRESH_SECONDS
    handset: bool = False
    transaction_id: str | None = None
    completed_at: str | None = None
    failure_message: str | None = None
    cancellation_reason: str | None = None
    expires_soon: str | None = None


def page_state(payment: Payment, charge: Charge | None, *, at: datetime) -> str:
    """The one of the page's states that fits; `charge` is the payment's last."""
    if payment.status is not PaymentStatus.PENDING:
        return payment.status.value
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
    *,
    at: datetime,
    title: str,
    public_url: str,
    stylesheet_path: str,
    qr_data_uri: str,
    form_token: str,
    form: Form | None = None,
) -> Page:
    """The page of a payment at the instant `at` of the account's time."""
    state = page_state(payment, charge, at=at)
    reason = payment.cancellation_reason or ("expired" if state == "cancelled" else None)
    shows_phone = charge is not None and state in ("check_phone", "in_progress", "in_doubt")
    return Page(
        service_name=title,
        language="en",
        stylesheet_path=stylesheet_path,
        merchant_name=account.merchant_name,
        amount=money.shown(payment.amount_santim),
        currency=money.CURRENCY,
        description=payment.description and masked(payment.description),
        sandbox=not account.livemode,
        payment_path=f"/p/{payment.link_token}",
        payment_link=link(payment, public_url),
        qr_data_uri=qr_data_uri,
        return_url=return_url(payment),
        state=state,
        form_token=form_token,
        form=form
        or Form(phone=_as_people_write_it(payment.phone or ""), mobile_money_provider=_suggested_wallet(payment)),
        wallets=tuple(
            OfferedWallet(wallet.value, WALLET_NAMES[wallet], _NETWORK_NAMES[wallet])
            for wallet in wallets(livemode=account.livemode)
        ),
        notice=_notice(charge) if state == "choose" else None,
        provider_name=WALLET_NAMES[charge.rail] if charge else None,
        phone=_masked(charge.phone) if charge and shows_phone else None,
        handset=_needs_a_handset(charge, account, state),
        transaction_id=ids.shown(Prefix.TRANSACTION, payment.transaction_id) if payment.transaction_id else None,
        completed_at=_local_time(payment.ended_at) if payment.ended_at else None,
        failure_message=FAILURE_MESSAGES[payment.failure_code] if payment.failure_code else None,
        cancellation_reason=reason,
        expires_soon=_expires_soon(payment.expires_at - at) if state == "choose" else None,
    )


def return_url(payment: Payment) -> str | None:
    """The merchant's page, told which payment it is about and how it stands; never proof of payment."""
    if payment.callback_url is None:
        return None
    parts = urlsplit(payment.callback_url)
    told = urlencode({"payment_id": ids.shown(Prefix.PAYMENT, payment.id), "status": payment.status.value})
    return urlunsplit(parts._replace(query=f"{parts.query}&{told}" if parts.query else told))


def international(phone: str) -> str:
    """A number as people type it (0911 234 567, +251 911…) in the form that rails take; others unchanged."""
    digits = _PHONE_NOISE.sub("", phone)
    if re.fullmatch(r"0[79][0-9]{8}", digits):
        return f"+251{digits[1:]}"
    if re.fullmatch(r"(?:00)?251[79][0-9]{8}", digits):
        return f"+{digits.removeprefix('00')}"
    return digits


def _as_people_write_it(phone: str) -> str:
    """An Ethiopian number as it is written at home, 0911 234 567; others unchanged."""
    if re.fullmatch(r"\+251[79][0-9]{8}", phone):
        return f"0{phone[4:7]} {phone[7:10]} {phone[10:]}"
    return phone


def _suggested_wallet(payment: Payment) -> str:
    if payment.mobile_money_provider:
        return payment.mobile_money_provider
    phone = payment.phone or ""
    return Wallet.MPESA.value if phone.startswith("+2517") else Wallet.TELEBIRR.value if phone else ""


def _notice(charge: Charge | None) -> str | None:
    """What came of the last try, and what that means for the money."""
    if charge is None or charge.failure_code is None:
        return None
    return f"{FAILURE_MESSAGES[charge.failure_code]} Nothing was taken; you can try again."


def _needs_a_handset(charge: Charge | None, account: Account, state: str) -> bool:
    return (
        charge is not None
        and not account.livemode
        and state == "check_phone"
        and SandboxRail.waits_for_the_person(charge.phone)
    )


def _masked(phone: str) -> str:
    return f"{phone[:6]} … {phone[-2:]}"


def _local_time(at: datetime) -> str:
    return at.astimezone(_ETHIOPIAN_TIME).strftime("%d %B %Y, %H:%M")


def _expires_soon(left: timedelta) -> str | None:
    if left > _EXPIRES_SOON:
        return None
    minutes = int(left.total_seconds() // 60)
    return "less than a minute" if minutes == 0 else f"about {minutes} more minute{'s' if minutes > 1 else ''}"
