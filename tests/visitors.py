"""A person in front of the page: a browser session, what it does, and what the page then says."""

from __future__ import annotations

import json
from pathlib import Path

from specviz.decode import Limits, decode
from specviz.drafters import METHODS
from specviz.sampling import Sampling
from specviz.trace import Header, Trace
from specviz.ui import files
from tests.pagekit import toy, until

WIDE = {"width": 1280, "height": 900}


def solo(prompt: str = "red fish", max_new: int = 24, name: str = "toy") -> Trace:
    header, *iterations = decode(toy(name), METHODS["plain"](), prompt, Sampling(), Limits(max_new), raw=True)
    assert isinstance(header, Header)
    return Trace(header, iterations)


class Visitor:
    """One browser session: what a person does, and what the page then says."""

    def __init__(self, browser, site, query: str = "", viewport=None, locale: str = "en-GB"):
        self.site = site
        self.context = browser.new_context(viewport=viewport or WIDE, locale=locale)
        self.context.set_default_timeout(60_000)  # a loaded machine is no fault of the page
        self.tab = self.context.new_page()
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.hosts.add(request.url.split("/")[2] if "//" in request.url else request.url[:5]))
        self.tab.goto(site.url + "?" + query)
        self.tab.wait_for_selector("#run")
        self.tab.wait_for_function("window.specviz && document.body.dataset.run")
        self.tab.wait_for_function("Object.keys(window.specviz.page.last).length > 0")

    def stats(self) -> dict:
        return json.loads(self.tab.evaluate("JSON.stringify(window.specviz.stats)"))

    def state(self) -> str:
        return self.tab.evaluate("document.body.dataset.run")

    def status(self) -> str:
        return self.tab.inner_text("#status .pg-status")

    def reach(self, *states: str, seconds: float = 20) -> float:
        return until(lambda: self.state() in states, seconds)

    def run(self) -> None:
        self.tab.click("#run")

    def saved(self) -> dict[str, Trace]:
        """What the button for saving gives."""
        with self.tab.expect_download() as download:
            self.tab.click("#files button")
        return files.lanes_of(Path(download.value.path()).read_bytes())

    def decoding(self, tokens: int) -> None:
        """Waits until a live run has brought that many tokens to the screen."""
        until(lambda: self.state() == "busy" and self.stats()["run"] not in ("", "recorded") and self.stats()["tokens"] > tokens)

    def close(self) -> None:
        self.context.close()
