"""A certificate authority of the tests, and certificates: good, expired, in another name, self-signed."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Authority:
    """Signs certificates; whoever reads `bundle` trusts it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Tests of Zembil")
        now = datetime.now(UTC)
        certificate = (
            _builder(self._name, self._name, self._key, now - _DAY, now + _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_may_sign_certificates(), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = directory / "authority.pem"
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))

    def server(
        self, *names: str, expired: bool = False, self_signed: bool = False, newest: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """What a server needs to answer over TLS as one of these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = _named(names[0])
        certificate = (
            _builder(
                subject,
                subject if self_signed else self._name,
                key,
                now - 2 * _DAY,
                now - _DAY if expired else now + _DAY,
            )
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key((key if self_signed else self._key).public_key()),
                critical=False,
            )
            .sign(key if self_signed else self._key, hashes.SHA256())
        )
        path = self._directory / f"{x509.random_serial_number()}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if newest is not None:
            context.set_ciphers("DEFAULT@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = newest
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _may_sign_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
