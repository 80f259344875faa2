"""Failed authentication: whose it is, and when there was too much of it."""

from ipaddress import ip_network
from typing import Any

import pytest

from zembil.errors import RateLimitExceeded
from zembil.web.rate_limits import FailedAuthentications, client_address

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


def scope(peer: str | None, *forwarded: str) -> dict[str, Any]:
    return {
        "client": None if peer is None else (peer, 40000),
        "headers": [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded],
    }


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", (), "203.0.113.9"),
        ("203.0.113.9", ("198.51.100.1",), "203.0.113.9"),  # a stranger's word
        ("10.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        ("10.0.0.1", ("192.0.2.1, 198.51.100.1",), "198.51.100.1"),  # what the client claimed itself
        ("10.0.0.1", ("192.0.2.1", "198.51.100.1, 10.9.9.9"), "198.51.100.1"),
        ("10.0.0.1", ("10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.1, unknown",), "10.0.0.1"),
        ("10.0.0.1", ("é",), "10.0.0.1"),
        ("fd00::1", ("2001:db8::7",), "2001:db8::7"),
        (None, ("198.51.100.1",), ""),
    ],
)
def test_an_address_is_the_peers_or_what_our_nearest_proxy_says(
    peer: str | None, forwarded: tuple[str, ...], address: str
) -> None:
    assert client_address(scope(peer, *forwarded), PROXIES) == address


def refused(failures: FailedAuthentications, peer: str) -> int | None:
    """Count a failure; the seconds to wait if there were too many."""
    try:
        failures.count(scope(peer))
    except RateLimitExceeded as error:
        return int(dict(error.headers)["Retry-After"])
    return None


def test_so_many_in_any_minute_and_no_more() -> None:
    now = [0.0]
    failures = FailedAuthentications(3, trusted_proxies=(), now=lambda: now[0])
    answers: dict[float, int | None] = {}
    for second in (0, 10, 20, 30, 59.5, 60, 61, 70, 80, 81):
        now[0] = second
        answers[second] = refused(failures, "203.0.113.9")
    assert {second for second, wait in answers.items() if wait is None} == {0, 10, 20, 60, 70, 80}
    assert (answers[30], answers[59.5], answers[61]) == (30, 1, 9)


def test_addresses_do_not_count_for_each_other_but_a_network_of_one_customer_does() -> None:
    failures = FailedAuthentications(1, trusted_proxies=(), now=lambda: 0.0)
    assert refused(failures, "203.0.113.9") is None
    assert refused(failures, "203.0.113.10") is None
    assert refused(failures, "203.0.113.9") == 60
    assert refused(failures, "2001:db8::1") is None
    assert refused(failures, "2001:db8::ffff") == 60
    assert refused(failures, "2001:db8:0:1::1") is None


def test_without_a_limit_nobody_is_counted() -> None:
    failures = FailedAuthentications(0, trusted_proxies=(), now=lambda: 0.0)
    assert [refused(failures, "203.0.113.9") for _ in range(1000)] == [None] * 1000
