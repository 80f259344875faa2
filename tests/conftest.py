"""Fixtures: one `zembil dev` for each test process, a merchant and a receiver for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("zembil") / "data")
    yield running
    assert running.stop() == 0


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
def data(tmp_path: Path) -> Path:
    """Where a test that starts a Zembil of its own keeps its data."""
    return tmp_path / "data"
