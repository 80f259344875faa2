"""Where a webhook may go: what a URL must look like, and which addresses may be dialled.

The URL is judged at registration, without a DNS look-up. The address that is really dialled is judged at every attempt,
which is the guard that counts: a name may answer differently the second time.
"""

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import idna

from zembil.config import Networks
from zembil.errors import Fault

_VISIBLE_ASCII = re.compile(r"[!-~]+")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"(?:.*@)?\[[0-9a-f:.]+\](?::[0-9]*)?", re.IGNORECASE)
_PORTS_BELOW_1024 = (443, 8443)

# `is_global` calls these global although they lead inside, to many, or to an IPv4 address in disguise.
_INSIDE = tuple(
    ip_network(text)
    for text in (
        "192.88.99.0/24", "192.0.0.0/24", "100.64.0.0/10", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64",
        "2001::/23", "2002::/16", "fec0::/10", "3fff::/20", "5f00::/16",
    )
)  # fmt: skip


def may_be_dialled(address: str, *, allowed: Networks) -> bool:
    """Whether an address is on the public internet, or in a network that the operator allows."""
    ip = ip_address(address.split("%")[0])
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if any(_within(ip, network) for network in allowed):
        return True
    return ip.is_global and not ip.is_multicast and not any(_within(ip, network) for network in _INSIDE)


def _within(ip: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    return ip.version == network.version and ip in network


def url_faults(url: str, *, livemode: bool) -> Iterator[Fault]:
    """What is wrong with the URL of an endpoint, one sentence each."""
    if not _VISIBLE_ASCII.fullmatch(url) or "\\" in url or "#" in url:
        yield Fault("", "Give an address in plain ASCII, without spaces, backslash or #; write names in punycode.")
        return
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if parts is None or not host or parts.scheme not in ("http", "https"):
        yield Fault("", "Give a complete address, for example https://shop.example.et/webhooks.")
        return
    if parts.scheme == "http" and livemode:
        yield Fault("", "Live events are sent over https only.")
    if "[" in parts.netloc and not _IN_BRACKETS.fullmatch(parts.netloc):
        # urlsplit passes over what stands behind the brackets, and takes the unheard-of [v1.x].
        yield Fault("", "This is not an IP address in its usual form.")
    if "@" in parts.netloc:
        yield Fault("", "Leave user name and password out; the signature proves that an event is ours.")
    if port == 0 or (livemode and port is not None and port < 1024 and port not in _PORTS_BELOW_1024):
        yield Fault("", "Use port 443, 8443, or one from 1024.")
    yield from _host_faults(host, livemode=livemode)


def _host_faults(host: str, *, livemode: bool) -> Iterator[Fault]:
    labels = host.split(".")
    if ":" in host or _NUMERIC.fullmatch(labels[-1]):
        if livemode:
            yield Fault("", "Use a host name, not an IP address.")
        elif not _is_ip(host):
            yield Fault("", "This is not an IP address in its usual form.")
    elif len(host) > 253 or not all(_is_label(label) for label in labels):
        yield Fault("", "This is not a host name.")
    elif livemode and (len(labels) == 1 or labels[-1].lower() in ("localhost", "local", "internal")):
        yield Fault("", "Use a host name that the public internet knows.")


def _is_label(label: str) -> bool:
    if not _LABEL.fullmatch(label):
        return False
    if not label.lower().startswith("xn--"):
        return True
    try:
        idna.ulabel(label)
    except idna.IDNAError:
        return False
    return True


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
