"""How a page of the dashboard looks: it fits a phone and a desk, axe finds nothing, light and dark.

ZEMBIL_SCREENSHOTS=DIR keeps a picture of each, for people to look at.
"""

import os
from pathlib import Path
from typing import Any, cast

from axe_playwright_python.async_playwright import Axe

from tests.browser.person import Person

SIZES = ((360, 740), (1280, 800))
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
NOTHING_SIDEWAYS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def demand_good_looks(person: Person, name: str) -> None:
    """The page that the person sees now, which `name` calls in pictures and complaints."""
    page, axe = person.page, cast("Any", Axe())
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        assert await page.evaluate(NOTHING_SIDEWAYS), f"{name} is wider than {width} pixels"
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            if keep := os.environ.get("ZEMBIL_SCREENSHOTS"):
                await page.screenshot(path=Path(keep, f"dashboard-{name}-{width}-{theme}.png"), full_page=True)
            if (width, theme) == (1280, "dark"):
                continue  # what differs from the others was judged: the width in light, the colours on the phone
            found: Any = await axe.run(page, options={"runOnly": RULES})
            complaints = [
                (rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found.response["violations"]
            ]
            assert complaints == [], f"{name}, {width} pixels, {theme}"
