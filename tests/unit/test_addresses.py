"""Where webhooks may go: URLs at registration, and the addresses that are really dialled."""

from ipaddress import ip_network

import pytest

from zembil.webhooks.addresses import may_be_dialled, url_faults

FORBIDDEN = [
    # IPv4: this host, private, shared, loopback, link-local with the metadata services, documentation, tests …
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1"),
    *("169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.1"),
    *("192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1"),
    # … many at once, reserved, everybody.
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    # IPv6: nobody, loopback, unique local (with a metadata service), link-local, site-local, many at once.
    *("::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1"),
    # IPv4 in disguise: mapped, compatible, NAT64, 6to4, Teredo.
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "2001:0:7f00:1::1", "2001::1"),
    # Documentation, discard, segment routing.
    *("2001:db8::1", "3fff::1", "100::1", "5f00::1"),
]
ALLOWED = [
    *("1.1.1.1", "8.8.8.8", "196.188.0.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.167.255.255"),
    *("2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "2c0f:f248::1", "::ffff:8.8.8.8"),
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_leads_inside_is_not_dialled(address: str) -> None:
    assert not may_be_dialled(address, allowed=())


@pytest.mark.parametrize("address", ALLOWED)
def test_an_address_on_the_public_internet_is_dialled(address: str) -> None:
    assert may_be_dialled(address, allowed=())


def test_an_operator_may_allow_a_network_and_nothing_beside_it() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    for address in ("10.1.0.1", "::ffff:10.1.2.3", "fd00::1", "8.8.8.8"):
        assert may_be_dialled(address, allowed=allowed)
    for address in ("10.2.0.1", "::ffff:10.2.0.1", "127.0.0.1", "::1", "fe80::1"):
        assert not may_be_dialled(address, allowed=allowed)


def test_allowing_loopback_allows_neither_all_addresses_nor_the_unspecified_one() -> None:
    loopback = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert may_be_dialled(address, allowed=loopback)
    for address in ("0.0.0.0", "::", "::127.0.0.1", "64:ff9b::7f00:1", "10.0.0.1", "169.254.169.254"):
        assert not may_be_dialled(address, allowed=loopback)


REFUSED_EVERYWHERE = [
    *("", "x", "/hooks", "//shop.example.et/", "shop.example.et", "http:", "http://", "http:///hooks", "http:shop.et"),
    *("ftp://shop.example.et/", "file:///etc/passwd", "javascript:alert(1)", "gopher://shop.et/", "ws://shop.et/"),
    *("unix:///run/x.sock", "data:text/plain,x", "http+unix://x/"),
    *(" http://shop.example.et/", "http://shop.example.et/ ", "http://shop.example.et/a b", "http://shop.et/\n"),
    *(
        "http://sh\top.et/",
        "http://shop.et/\r\nX: y",
        "http://shop.et/\0",
        "http://shop.et/\x7f",
        "\x01http://shop.et/",
    ),
    *(
        "http://shop.et\\@evil.example/",
        "http:\\\\shop.et",
        "http://shop.et/#fragment",
        "http://shop.et#@evil.example/",
    ),
    *(
        "http://①②⑦.0.0.1/",
        "http://ｓhop.et/",
        "http://ሱቅ.et/",
        "http://shop—x.et/",
        "http://shop。et/",
        "http://faß.de/",
    ),
    *("http://user@shop.et/", "http://user:password@shop.et/", "http://@shop.et/", "http://shop.et@evil.example/"),
    *("http://shop.et:0/", "http://shop.et:65536/", "http://shop.et:x/", "http://shop.et:-1/", "http://shop.et:80:80/"),
    *("http://shop.et:8 0/", "http://.shop.et/", "http://shop..et/", "http://shop.et./", "http://localhost./"),
    *("http://-shop.et/", "http://shop-.et/", "http://sh!op.et/", "http://sh%6fp.et/", "http://shop.et%2f/"),
    *(f"http://{'a' * 64}.et/", f"http://{'a.' * 127}et/", "http://xn--a/", "http://xn--.et/", "http://xn--zz-.et/"),
    *("http://0x7f000001/", "http://2130706433/", "http://017700000001/", "http://0177.0.0.1/", "http://127.1/"),
    *(
        "http://127.0.0.0x1/",
        "http://0x7f.0.0.1/",
        "http://256.0.0.1/",
        "http://1.2.3.4.5/",
        "http://0/",
        "http://1.2.3/",
    ),
    *("http://[::1/", "http://[]/", "http://[x]/", "http://[::1]x/", "http://[127.0.0.1]/", "http://::1/"),
    *("http://[v1.x]/", "http://[::1%25eth0]/", "http://[::1]:x/", "http://shop.et:80@evil.example:80/"),
]
REFUSED_LIVE = [
    *("http://shop.example.et/", "HTTP://shop.example.et/", "https://127.0.0.1/", "https://8.8.8.8/", "https://[::1]/"),
    *("https://[2606:4700:4700::1111]/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/latest/meta-data/"),
    *("https://localhost/", "https://LOCALHOST/", "https://shop/", "https://shop.localhost/", "https://printer.local/"),
    *("https://metadata.google.internal/", "https://db.internal/"),
    *(f"https://shop.example.et:{port}/" for port in (1, 21, 22, 25, 80, 111, 389, 442, 444, 1023)),
]
ACCEPTED_LIVE = [
    *(
        "https://shop.example.et/hooks",
        "https://shop.example.et",
        "HTTPS://Shop.Example.ET/",
        "https://shop.example.et/?a=b",
    ),
    *(
        "https://shop.example.et:443/",
        "https://shop.example.et:8443/",
        "https://shop.example.et:1024/",
        "https://a.et:65535/",
    ),
    *("https://xn--4dbcagdahymbxekheh6e0a7fei0b.example/", "https://my_shop.example.et/", "https://3com.example/"),
    *(
        "https://shop.example.et:/",
        f"https://{'a' * 63}.et/",
        "https://10.example.et/",
        "https://shop.example.et/%E1%88%B0",
    ),
]
ACCEPTED_SANDBOX = [
    *("http://shop.example.et/", "http://127.0.0.1:8000/hooks", "http://localhost:3000/", "http://[::1]:8000/"),
    *("http://shop/", "http://printer.local/", "http://192.168.1.7/", "https://8.8.8.8/", "http://shop.et:22/"),
]


def faults(url: str, *, livemode: bool) -> list[str]:
    found = list(url_faults(url, livemode=livemode))
    assert all(fault.message for fault in found)
    return [fault.message for fault in found]


@pytest.mark.parametrize("url", REFUSED_EVERYWHERE)
def test_what_is_no_plain_address_is_registered_nowhere(url: str) -> None:
    assert faults(url, livemode=False)
    assert faults(url, livemode=True)
    assert faults(url.replace("http:", "https:"), livemode=True)


@pytest.mark.parametrize("url", REFUSED_LIVE)
def test_what_may_lead_inside_is_not_registered_live(url: str) -> None:
    assert faults(url, livemode=True)


@pytest.mark.parametrize("url", ACCEPTED_LIVE)
def test_a_public_https_address_is_registered_in_both_environments(url: str) -> None:
    assert not faults(url, livemode=True)
    assert not faults(url, livemode=False)


@pytest.mark.parametrize("url", ACCEPTED_SANDBOX)
def test_a_sandbox_may_tell_a_program_on_the_developers_machine(url: str) -> None:
    assert not faults(url, livemode=False)
