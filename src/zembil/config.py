"""Every setting, read once from the environment and passed down. Secrets never show in `repr` or logs."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from zembil.errors import ConfigurationError

Networks = tuple[IPv4Network | IPv6Network, ...]

_SERVICE_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_TOKEN = re.compile(r"[!-~]{16,200}")
_SECRET_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """How much is answered in any 60 seconds; 0: no limit."""

    sandbox: int = 1000  # requests of an account
    live: int = 5000
    failed_authentications: int = 60  # of an address


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process runs; docs/settings.md says each in full."""

    database_url: str = field(repr=False)
    secret_key: bytes = field(repr=False)  # 32 bytes: seals webhook secrets at rest
    public_url: str = "http://127.0.0.1:8420"  # no slash at the end; what links and answers name, never the Host header
    service_name: str = "zembil"
    payment_santim_max: int = 99_999_999
    endpoints_max: int = 16
    webhook_allow_networks: Networks = ()
    sandbox_webhook_allow_networks: Networks = ()
    database_connections_max: int = 20
    history_days: int = 90  # how long events, deliveries and attempts are kept at least
    rate_limits: RateLimits = RateLimits()
    request_log_days: int = 30  # 0: no log
    trusted_proxies: Networks = ()  # whose X-Forwarded-For is believed
    metrics_token: str = field(default="", repr=False)  # what /metrics asks for; "": there is no such page

    @property
    def title(self) -> str:
        """The service's name as pages show it."""
        return self.service_name.replace("-", " ").title()

    def base_url(self, *, livemode: bool) -> str:
        return self.public_url + ("/v1" if livemode else "/sandbox/v1")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings of a production process.

    Raises ConfigurationError that names every setting that is missing, malformed or unsafe.
    """
    reader = _Reader(environment)
    settings = Settings(
        database_url=reader.database_url(),
        secret_key=reader.secret_key(),
        public_url=reader.public_url(),
        service_name=reader.service_name(),
        payment_santim_max=reader.whole_number("ZEMBIL_PAYMENT_SANTIM_MAX", 99_999_999, least=100, most=99_999_999_999),
        endpoints_max=reader.whole_number("ZEMBIL_WEBHOOK_ENDPOINTS_MAX", 16, least=1, most=1000),
        webhook_allow_networks=reader.networks("ZEMBIL_WEBHOOK_ALLOW_CIDRS"),
        sandbox_webhook_allow_networks=reader.networks("ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS"),
        database_connections_max=reader.whole_number("ZEMBIL_DATABASE_CONNECTIONS_MAX", 20, least=5, most=500),
        history_days=reader.whole_number("ZEMBIL_HISTORY_DAYS", 90, least=30, most=36500),
        rate_limits=reader.rate_limits(RateLimits()),
        request_log_days=reader.whole_number("ZEMBIL_REQUEST_LOG_DAYS", 30, least=0, most=365),
        trusted_proxies=reader.networks("ZEMBIL_TRUSTED_PROXIES"),
        metrics_token=reader.metrics_token(),
    )
    reader.raise_if_anything_is_wrong()
    return settings


def rate_limits_of(environment: Mapping[str, str], default: RateLimits) -> RateLimits:
    """The rate limits of a process that sets everything else by itself. Raises ConfigurationError."""
    reader = _Reader(environment)
    limits = reader.rate_limits(default)
    reader.raise_if_anything_is_wrong()
    return limits


class _Reader:
    """Reads settings and collects what is wrong, so that an operator sees all of it at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._wrong: list[str] = []

    def raise_if_anything_is_wrong(self) -> None:
        if self._wrong:
            raise ConfigurationError("\n".join(self._wrong))

    def database_url(self) -> str:
        url = self._environment.get("ZEMBIL_DATABASE_URL", "")
        if not url.startswith(("postgresql://", "postgres://")):
            self._wrong.append("Set ZEMBIL_DATABASE_URL to your database: postgresql://user:password@host:5432/zembil")
        return url

    def secret_key(self) -> bytes:
        text = self._environment.get("ZEMBIL_SECRET_KEY", "")
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _SECRET_KEY_BYTES or len(set(key)) < 8:
            self._wrong.append(
                "Set ZEMBIL_SECRET_KEY to 32 random bytes in base64 (`openssl rand -base64 32` makes one) "
                "and keep a copy: without it webhook secrets cannot be read."
            )
        return key

    def public_url(self) -> str:
        url = self._environment.get("ZEMBIL_PUBLIC_URL", "").rstrip("/")
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path or parts.query or parts.fragment:
            self._wrong.append(
                "Set ZEMBIL_PUBLIC_URL to the https address under which people reach Zembil, "
                "for example https://pay.example.et"
            )
        return url

    def service_name(self) -> str:
        name = self._environment.get("ZEMBIL_SERVICE_NAME", "zembil")
        if not _SERVICE_NAME.fullmatch(name):
            self._wrong.append("ZEMBIL_SERVICE_NAME takes lower-case letters, digits and dashes, for example zembil")
        return name

    def metrics_token(self) -> str:
        token = self._environment.get("ZEMBIL_METRICS_TOKEN", "")
        if token and not _TOKEN.fullmatch(token):
            self._wrong.append("ZEMBIL_METRICS_TOKEN takes 16 to 200 letters, digits or signs (`openssl rand -hex 32`)")
        return token

    def whole_number(self, name: str, default: int, *, least: int, most: int) -> int:
        text = self._environment.get(name)
        if text is None:
            return default
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
        if number is None or not least <= number <= most:
            self._wrong.append(f"{name} takes a whole number from {least} to {most}")
            return default
        return number

    def rate_limits(self, default: RateLimits) -> RateLimits:
        def limit(name: str, number: int) -> int:
            return self.whole_number(name, number, least=0, most=10_000_000)

        return RateLimits(
            sandbox=limit("ZEMBIL_RATE_LIMIT_SANDBOX", default.sandbox),
            live=limit("ZEMBIL_RATE_LIMIT_LIVE", default.live),
            failed_authentications=limit("ZEMBIL_RATE_LIMIT_FAILED_AUTHENTICATION", default.failed_authentications),
        )

    def networks(self, name: str) -> Networks:
        text = self._environment.get(name, "")
        try:
            return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
        except ValueError:
            self._wrong.append(f"{name} takes networks separated by commas, for example 10.1.0.0/16,fd00::/8")
            return ()
