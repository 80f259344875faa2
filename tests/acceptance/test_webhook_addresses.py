"""No event, no redirect and no test goes where it must not: not one connection arrives at a canary on the inside."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_deliveries import attempts, create, register
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_hostile_receivers import let_all_three_pass, recorded_attempts
from tests.acceptance.test_webhook_endpoints import refused_fields, registered
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.hostile import HostileServer, answers
from tests.support.serving import Deployment, deployed, names_as_told
from tests.unit.test_addresses import (
    ACCEPTED_LIVE,
    ACCEPTED_SANDBOX,
    FORBIDDEN,
    REFUSED_EVERYWHERE,
    REFUSED_LIVE,
)

# The receiver, and the only address inside that the sandbox of this deployment may reach. A canary listens beside it.
RECEIVER, CANARIES = "127.0.0.1", ("127.0.0.2", "127.255.255.254", "::1")
INSIDE = [address for address in FORBIDDEN if "%" not in address]
INSIDE_SANDBOX = [address for address in INSIDE if address not in (RECEIVER, f"::ffff:{RECEIVER}")]
REBOUND = [
    *(*CANARIES, "::ffff:127.0.0.2", "::127.0.0.2", "64:ff9b::7f00:2", "2002:7f00:2::1", "0.0.0.0", "::"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "fd00:ec2::254", "fe80::1"),
    *("fec0::1", "ff02::1", "224.0.0.1", "255.255.255.255", "192.0.0.170", "2001:0:7f00:2::1"),
]

NAMES: dict[str, list[list[str]]] = {
    "never-asked.test": [[RECEIVER]],
    **{f"inside-{number}.test": [[address]] for number, address in enumerate(INSIDE)},
    # Judged at registration, at the first attempt, at any time before: it does not matter what a name meant then.
    **{f"rebound-{n}.test": [[RECEIVER], [inside], [inside, RECEIVER]] for n, inside in enumerate(REBOUND)},
}

# What the sandbox registers, since somebody may have allowed it, and what leads inside all the same.
LITERALS = [
    *("127.0.0.2", "127.255.255.254", "0.0.0.0", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.100.100.200"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::ffff:127.0.0.2]", "[::FFFF:7F00:2]", "[::7f00:2]"),
    *("[64:ff9b::127.0.0.2]", "[64:ff9b:1::7f00:2]", "[2002:7f00:2::]", "[fd00::1]", "[fe80::1]", "[ff02::1]"),
]
# What no registration takes; it stands in the row all the same. PORT is the canary's.
SMUGGLED = [
    *("http://2130706434:PORT/", "http://0x7f000002:PORT/", "http://017700000002:PORT/", "http://0177.0.0.2:PORT/"),
    *("http://127.2:PORT/", "http://127.0.2:PORT/", "http://0x7f.0.0.2:PORT/", "http://127.0.0.2.:PORT/"),
    *("http://①②⑦.0.0.2:PORT/", "http://１２７.0.0.2:PORT/", "http://127。0。0。2:PORT/"),
    *(
        "http://%31%32%37.0.0.2:PORT/",
        "http://rebound-0.test@127.0.0.2:PORT/",
        "http://127.0.0.2:PORT\\@rebound-0.test/",
    ),
    *("http://[::1%25lo]:PORT/", "http://127.0.0.2:PORT#@rebound-0.test/", "http://127.0.\t0.2:PORT/"),
    *(" http://127.0.0.2:PORT/", "http://ip6-localhost:PORT/", "//127.0.0.2:PORT/", "HTTP:127.0.0.2:PORT"),
    *("gopher://127.0.0.2:PORT/_x", "file:///etc/passwd", "http://", ""),
]


class Canary:
    """Listens on addresses inside; nobody may ever connect."""

    def __init__(self, addresses: tuple[str, ...], *, port: int = 0) -> None:
        self._listening: list[socket.socket] = []
        self.port = port
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            # A machine may be without IPv6.
            with suppress(OSError) if family == socket.AF_INET6 else ExitStack():
                listening = socket.create_server((address, self.port), family=family)
                listening.setblocking(False)
                self._listening.append(listening)
                self.port = listening.getsockname()[1]

    def connections(self) -> int:
        """How many have connected so far, also those who went away again."""
        count = 0
        for listening in self._listening:
            with suppress(BlockingIOError):
                while True:
                    listening.accept()[0].close()
                    count += 1
        return count

    def close(self) -> None:
        for listening in self._listening:
            listening.close()


@pytest.fixture(scope="module")
def deployment(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("addresses")
    settings = {
        "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": f"{RECEIVER}/32",
        "ZEMBIL_WEBHOOK_ENDPOINTS_MAX": "1000",
        "ZEMBIL_RATE_LIMIT_SANDBOX": "0",
        **names_as_told(directory, NAMES),
    }
    with deployed(gateway, directory / "log", **settings) as deployment:
        yield deployment


@pytest.fixture
def owner(deployment: Deployment) -> Iterator[Merchant]:
    new = deployment.new_merchant()
    yield new
    new.close()


# At registration


def test_the_api_refuses_every_spelling_that_is_no_plain_public_address(owner: Merchant) -> None:
    sandbox, live = owner.client(), owner.client(livemode=True)
    endpoint = registered(sandbox)
    assert len(REFUSED_EVERYWHERE) + len(REFUSED_LIVE) >= 60
    for url in REFUSED_EVERYWHERE:
        body = {"url": url, "events": ["*"]}
        for api, sent in ((sandbox, body), (live, body), (live, body | {"url": url.replace("http:", "https:")})):
            assert refused_fields(api.post("/webhooks", json=sent)) == {"url"}, url
        assert refused_fields(sandbox.patch(f"/webhooks/{endpoint['id']}", json={"url": url})) == {"url"}, url
    for url in REFUSED_LIVE:
        assert refused_fields(live.post("/webhooks", json={"url": url, "events": ["*"]})) == {"url"}, url
    assert live.get("/webhooks").json()["data"]["pagination"]["total"] == 0


def test_a_registration_looks_no_name_up(deployment: Deployment, owner: Merchant) -> None:
    sandbox, live = owner.client(), owner.client(livemode=True)
    for url in (*ACCEPTED_SANDBOX, "http://never-asked.test/"):
        assert registered(sandbox, url=url)["url"] == url
    for url in (*ACCEPTED_LIVE, "https://never-asked.test/"):
        assert registered(live, url=url)["url"] == url
    asked = Path(deployment.log).with_name("names.asked")
    assert not asked.exists() or "never-asked.test" not in asked.read_text().splitlines()


# At every attempt


def test_no_attempt_of_the_sandbox_reaches_an_address_that_is_not_allowed(
    deployment: Deployment, owner: Merchant
) -> None:
    rebound = [f"rebound-{number}.test" for number in range(len(REBOUND))]
    inside = [name for name, (answer,) in _inside_names() if answer[0] in INSIDE_SANDBOX]
    redirects = {f"redirect-{code}-{number}": code for code in (301, 302, 303, 307, 308) for number in range(4)}
    with ExitStack() as stack:
        port = 0

        def somewhere_inside(number: int) -> str:
            return [
                f"http://127.0.0.2:{port}/",
                f"http://[::1]:{port}/",
                f"//127.0.0.2:{port}",
                f"http:127.0.0.2:{port}",
            ][number]

        behaviours = {name: answers(500) for name in rebound}
        server = HostileServer(behaviours)
        stack.callback(server.close)
        port = server.port
        for name, code in redirects.items():
            behaviours[name] = answers(code, Location=somewhere_inside(int(name[-1])), Refresh="0; url=http://[::1]/")
        canary = stack.enter_context(closing(Canary(CANARIES, port=port)))
        api = owner.client()
        refused = [register(api, f"http://{host}:{port}/") for host in (*inside, *LITERALS)]
        smuggled = [
            _smuggled(deployment, owner, url.replace("PORT", str(port)), number) for number, url in enumerate(SMUGGLED)
        ]
        redirected = {name: register(api, server.url(name)) for name in redirects}
        first_seen = [register(api, f"http://{name}:{port}/{name}") for name in rebound]
        create(api)
        let_all_three_pass(deployment, owner)

        for endpoint in refused:
            assert _kinds(api, endpoint) == [(None, "address_refused")] * 3, endpoint["url"]
        for endpoint in smuggled:
            assert {status for status, _ in _kinds(api, endpoint)} == {None}, endpoint["url"]
        for name, endpoint in redirected.items():
            assert _kinds(api, endpoint) == [(redirects[name], None)] * 3
        for name, endpoint in zip(rebound, first_seen, strict=True):
            # Twice to the receiver, and in between inside; of two addresses only the one that is allowed is dialled.
            assert _kinds(api, endpoint) == [(500, None), (None, "address_refused"), (500, None)], NAMES[name]
            assert server.requests[name] == 2
        assert server.connections == 2 * len(rebound) + 3 * len(redirects)
        assert canary.connections() == 0


def test_no_attempt_of_live_reaches_this_machine_or_a_private_network(deployment: Deployment, owner: Merchant) -> None:
    with closing(Canary((RECEIVER, *CANARIES))) as canary:
        api = owner.client(livemode=True)
        endpoints = [register(api, f"https://{name}:{canary.port}/") for name, _ in _inside_names()]
        create(api)

        def over() -> list[Any]:
            return [row for row in attempts(deployment, owner, livemode=True) if row["latency_ms"] is not None]

        assert eventually(lambda: len(over()) == len(endpoints))
        assert {(row["number"], row["status_code"], row["error"]) for row in over()} == {(1, None, "address_refused")}
        assert canary.connections() == 0


@pytest.mark.parametrize("livemode", [False, True])
def test_the_test_button_tells_nothing_of_the_inside(deployment: Deployment, owner: Merchant, livemode: bool) -> None:
    with closing(Canary(CANARIES)) as canary, socket.create_server((CANARIES[0], 0)) as closed:
        closed_port = closed.getsockname()[1]
        closed.close()
        api = owner.client(livemode=livemode)
        scheme = "https" if livemode else "http"
        hosts = [
            name for name, (answer,) in _inside_names() if answer[0] in ("127.0.0.2", "127.255.0.1", "10.0.0.1", "::1")
        ]
        told: list[dict[str, Any]] = []
        for port in (canary.port, closed_port, 8443):
            for host in hosts:
                endpoint = register(api, f"{scheme}://{host}:{port}/", "payment.completed")
                made = api.post(f"/webhooks/{endpoint['id']}/test", json={"type": "payment.created"})
                assert made.status_code == 201
                path = f"/deliveries/{made.json()['data']['id']}"
                assert eventually(lambda path=path: "latency_ms" in _attempts(api, path)[-1])
                told += _attempts(api, path)
        assert len(told) == 3 * len(hosts) >= 6
        # Open or closed, there or not: it looks the same.
        assert {(attempt.get("status_code"), attempt["error"]) for attempt in told} == {(None, "address_refused")}
        assert {frozenset(attempt) for attempt in told} == {frozenset({"number", "started_at", "latency_ms", "error"})}
        assert canary.connections() == 0


def _inside_names() -> list[tuple[str, list[list[str]]]]:
    return [(name, answers) for name, answers in NAMES.items() if name.startswith("inside-")]


def _smuggled(deployment: Deployment, owner: Merchant, url: str, number: int) -> dict[str, Any]:
    """An endpoint with a URL that was never registered."""
    api = owner.client()
    placeholder = f"http://placeholder-{number}.test/"
    endpoint = register(api, placeholder)
    account = account_of(deployment, owner.sandbox["admin_key"])
    query(
        deployment,
        "UPDATE webhook_endpoints SET url = $2 WHERE account_id = $1 AND url = $3",
        account,
        url,
        placeholder,
    )
    assert api.get(f"/webhooks/{endpoint['id']}").json()["data"]["url"] == url
    return endpoint | {"url": url}


def _kinds(api: httpx2.Client, endpoint: dict[str, Any]) -> list[tuple[int | None, str | None]]:
    return [(made.get("status_code"), made.get("error")) for made in recorded_attempts(api, endpoint)]


def _attempts(api: httpx2.Client, path: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = api.get(path).json()["data"]["attempts"]
    return made or [{}]
