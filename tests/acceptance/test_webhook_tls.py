"""Webhooks over https: a receiver is who its URL names, or it hears nothing."""

import ssl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.gateway import Gateway
from tests.support.receiver import Receiver


class Authority:
    """Vouches for names, in files below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority of the tests")])
        own = self._certificate(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.file = directory / "authority.pem"
        self.file.write_bytes(own)

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *more: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @contextmanager
    def receiver_named(self, name: str) -> Generator[Receiver]:
        """A receiver on this machine with a certificate for this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        held = self._directory / f"{name}.pem"
        held.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, *plain)
            + self._certificate(x509.Name([]), key, x509.SubjectAlternativeName([x509.DNSName(name)]))
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(held)
        receiver = Receiver()
        receiver.speak_tls(context)
        yield receiver
        receiver.close()


def first_attempt(api: httpx2.Client, receiver: Receiver) -> dict[str, Any]:
    """What came of the first attempt to tell a receiver, under the name localhost."""
    url = receiver.url.replace("http://127.0.0.1", "https://localhost")
    webhook = api.post("/webhooks", json={"url": url, "events": ["customer.created"]}).json()["data"]
    assert api.post("/customers", json={"email": "abebe@example.com"}).status_code == 201
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for listed in api.get(f"/webhooks/{webhook['id']}/deliveries").json()["data"]["deliveries"]:
            attempts = api.get(f"/deliveries/{listed['id']}").json()["data"]["attempts"]
            if attempts and "latency_ms" in attempts[0]:
                return attempts[0]
        time.sleep(0.1)
    raise AssertionError("no attempt in 20 seconds")


def test_a_receiver_with_a_certificate_for_another_name_hears_nothing(
    start: Callable[..., Gateway], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    gateway = start(environment={"SSL_CERT_FILE": str(authority.file)})
    merchant = gateway.new_merchant()
    with authority.receiver_named("localhost") as right, authority.receiver_named("shop.example.et") as wrong:
        assert first_attempt(merchant.client(), right)["status_code"] == 200
        assert first_attempt(merchant.client(), wrong)["error"] == "tls"
        assert (len(right.received) >= 1, wrong.received) == (True, [])
    merchant.close()


def test_a_receiver_that_nobody_vouches_for_hears_nothing(gateway: Gateway, tmp_path: Path) -> None:
    merchant = gateway.new_merchant()
    with Authority(tmp_path).receiver_named("localhost") as receiver:
        assert first_attempt(merchant.client(), receiver)["error"] == "tls"
        assert receiver.received == []
    merchant.close()
