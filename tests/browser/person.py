"""A person with a browser: opens payment links, reads, types and presses, and sees what the browser sees."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request, expect

Theme = Literal["light", "dark"]

PHONE = "0911 223 344"
ANSWERS = {
    "Approve": "approve",
    "Decline": "decline",
    "Not enough money": "insufficient_funds",
    "No answer": "no_answer",
}


@dataclass
class Person:
    """One browser profile. Everything it asks for and everything the console says is kept."""

    context: BrowserContext
    page: Page
    may_ask: set[str]  # the origins to which its browser may send something
    requested: list[str] = field(default_factory=list[str])
    console: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.context.on("request", self._keep_request)
        self.context.on("console", self._keep_message)

    def _keep_request(self, request: Request) -> None:
        self.requested.append(request.url)

    def _keep_message(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text}")

    @property
    def origins_asked(self) -> set[str]:
        """Whom the browser sent something to; what stands in the page itself (data:) is sent to nobody."""
        addresses = [urlsplit(url) for url in self.requested if not url.startswith("data:")]
        return {f"{address.scheme}://{address.netloc}" for address in addresses}

    @property
    def policy_violations(self) -> list[str]:
        return [message for message in self.console if "Content Security Policy" in message]

    async def opens(self, link: str) -> int:
        """Open a link; answers the status."""
        response = await self.page.goto(link)
        assert response is not None
        return response.status

    async def pays_with(self, phone: str = PHONE, *, wallet: str = "telebirr") -> None:
        await self.page.get_by_role("radio", name=wallet).check()
        await self.page.locator("#phone").fill(phone)
        await self.page.locator("form[action*='/charge'] button.primary").click()

    async def answers(self, answer: str) -> None:
        """Press a button of the simulated handset, by what it says in English."""
        await self.stands("check_phone")
        await self.page.locator(f"button[name=answer][value={ANSWERS[answer]}]").click()

    async def stands(self, state: str) -> None:
        """Wait until the page is in this state, in whatever language; pages that wait follow their payment."""
        await expect(self.page.locator(f"main[data-state={state}]")).to_be_visible(timeout=10_000)

    async def sees(self, heading: str) -> None:
        """Wait for the page that has this heading; pages that wait fetch themselves anew."""
        await expect(self.page.get_by_role("heading", name=heading, exact=True)).to_be_visible(timeout=10_000)

    async def sees_notice(self, text: str) -> None:
        await expect(self.page.get_by_role("alert")).to_contain_text(text, timeout=10_000)

    def field(self, label: str) -> Locator:
        return self.page.get_by_label(label)
