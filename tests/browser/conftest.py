"""Fixtures: one Chromium for each test process, and persons with a profile of their own."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.person import Person, Theme
from tests.browser.shop import Shop
from tests.support.gateway import Gateway

LOCAL_NETWORK_NAME = "zembil.test"  # reaches this machine too, but is no place that a browser trusts


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.fail("The browser tests need Chromium; on Debian: apt-get install chromium", pytrace=False)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable,
            chromium_sandbox=os.geteuid() != 0,
            args=[
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-proxy-server",
                f"--host-resolver-rules=MAP {LOCAL_NETWORK_NAME} 127.0.0.1",
            ],
        )
        yield browser
        await browser.close()


class NewPerson(Protocol):
    async def __call__(
        self, *, width: int = 360, height: int = 740, theme: Theme = "light", javascript: bool = True
    ) -> Person: ...


@pytest_asyncio.fixture(loop_scope="session")
async def new_person(gateway: Gateway, chromium: Browser) -> AsyncIterator[NewPerson]:
    """Makes persons. Whatever they do, their browsers ask nobody but us, and find nothing to object to in our pages."""
    persons: list[Person] = []
    async with AsyncExitStack() as leaving:

        async def new(
            *, width: int = 360, height: int = 740, theme: Theme = "light", javascript: bool = True
        ) -> Person:
            context = await chromium.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                reduced_motion="reduce",
                java_script_enabled=javascript,
            )
            leaving.push_async_callback(context.close)
            context.set_default_timeout(10_000)
            persons.append(Person(context, await context.new_page(), {gateway.origin}))
            return persons[-1]

        yield new
        for person in persons:
            assert person.origins_asked <= person.may_ask
            assert person.policy_violations == []


@pytest_asyncio.fixture(loop_scope="session")
async def person(new_person: NewPerson) -> Person:
    """A person with a small phone."""
    return await new_person()


@pytest.fixture
def shop() -> Iterator[Shop]:
    listening = Shop()
    yield listening
    listening.close()
