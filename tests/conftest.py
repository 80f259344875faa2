"""Fixtures: one `zembil dev` for each test process, a merchant and a receiver for each test."""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver
from zembil.db.embedded import EmbeddedPostgres

# How long an example takes is the machine's business, not a promise.
settings.register_profile("zembil", deadline=None)
settings.load_profile("zembil")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the server last logged stands beside a failure: it is often the reason."""
    report = yield
    gateway = getattr(item, "funcargs", {}).get("gateway")
    if report.failed and isinstance(gateway, Gateway):
        report.sections.append(("Zembil's log", gateway.log.read_text(errors="replace")[-4000:]))
    return report


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    data = tmp_path_factory.mktemp("zembil") / "data"
    running = Gateway(data)
    yield running
    status = running.stop()
    EmbeddedPostgres.reset(data / "postgres")
    assert status == 0


@pytest.fixture
def merchant(gateway: Gateway) -> Iterator[Merchant]:
    new = gateway.new_merchant()
    yield new
    new.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    listening = Receiver()
    yield listening
    listening.close()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Where a test that starts a Zembil of its own keeps its data."""
    directory = tmp_path / "data"
    yield directory
    EmbeddedPostgres.reset(directory / "postgres")


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., Gateway]]:
    """Starts a Zembil of the test's own, again and again on the same data; what still runs afterwards is killed."""
    started: list[Gateway] = []

    def start_one(*arguments: str, environment: Mapping[str, str] | None = None) -> Gateway:
        started.append(Gateway(data, *arguments, environment=environment))
        return started[-1]

    yield start_one
    for gateway in started:
        gateway.kill_tree()
