"""`make test-browser`: the page in Debian's Chromium; left alone unless asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.on_request import asked_for
from support.polling import TIMEOUT

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--no-sandbox",  # as root there is none to be had
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
)

Open = Callable[..., Awaitable["Page"]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run without a browser, before any test: none is left out silently."""
    if asked_for(session.config, "--browser") and not CHROMIUM.exists():
        raise pytest.UsageError(
            f"NOT RUN: no test of the page, because there is no {CHROMIUM}: "
            "apt-get install chromium"
        )


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=TIMEOUT * 1000)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield started
        await started.close()


@pytest.fixture
async def visit(browser: Browser) -> AsyncIterator[Open]:
    """Opens pages; what a page complains about, or asks others for, fails its test."""
    troubles: list[str] = []

    def complain(said: str) -> None:
        if "net::ERR_" not in said:  # the console stops before the page does
            troubles.append(said)

    async def go(url: str, *, quiet: bool = True, **options: Any) -> Page:
        page = await browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        page.set_default_timeout(TIMEOUT * 1000)
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("console", lambda said: quiet and complain(f"{said.type}: {said.text}"))
        page.on(
            "request",
            lambda request: (
                None
                if urlsplit(request.url).netloc == urlsplit(url).netloc
                else troubles.append(request.url)
            ),
        )
        await page.goto(url)
        return page

    yield go
    assert not troubles
