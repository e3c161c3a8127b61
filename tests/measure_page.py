"""How late and how heavy the page is: `python -m tests.measure_page`, by hand, with nothing else running.

Prints one JSON line: milliseconds from a token's commit in the engine to its place on the screen (p50, p95, most), the time
from the engine's end to the screen's, kilobytes on the wire, and updates a second, for a run of 300 and one of 1,000 tokens a lane.
"""

from __future__ import annotations

import json
import time

from playwright.sync_api import sync_playwright

from specviz.trace import Iteration
from specviz.ui.run import Run
from tests.pagekit import CHROMIUM, FLAGS, served, until

WATCH = """() => {
    window.drawn = [];
    let before = -1;
    const look = () => {
        const now = window.specviz.stats.race.rendered;
        if (now !== before && window.specviz.stats.run !== "recorded") { before = now; window.drawn.push([Date.now() / 1000, now]); }
        requestAnimationFrame(look);
    };
    look();
}"""


class Stamped:
    """Remembers when each token was there; put around Run.add for the time of the measurement."""

    def __init__(self):
        self.times: list[float] = []
        self.add = Run.add

    def __call__(self, run, lane, record):
        self.add(run, lane, record)
        if isinstance(record, Iteration):
            self.times += [time.time()] * len(record.emitted)


def measure(browser, site, tokens: int, target: str) -> dict[str, float]:
    stamps = Stamped()
    Run.add = lambda run, lane, record: stamps(run, lane, record)
    try:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.goto(f"{site.url}?target={target}&n={tokens}&methods=draft_model&as=raw&prompt=red+fish")
        tab.wait_for_selector("#run")
        tab.wait_for_function("Object.keys(window.specviz.page.last).length > 0")
        received = [0, 0]
        session = context.new_cdp_session(tab)
        session.send("Network.enable")
        session.on(
            "Network.dataReceived", lambda event: received.__setitem__(slice(None), [received[0] + event["dataLength"], received[1] + 1])
        )
        tab.evaluate(WATCH)
        tab.click("#run")
        until(lambda: tab.evaluate("document.body.dataset.run") == "done", 300, 0.2)
        until(lambda: tab.evaluate("window.specviz.stats.race.rendered") == len(stamps.times), 30, 0.1)
        drawn = tab.evaluate("window.drawn")
        context.close()
    finally:
        Run.add = stamps.add
    late, at = [], 0
    for number, made in enumerate(stamps.times, 1):
        while drawn[at][1] < number:
            at += 1
        late.append(1000 * (drawn[at][0] - made))
    late.sort()
    seconds = stamps.times[-1] - stamps.times[0]
    return {
        "tokens": len(stamps.times),
        "seconds": round(seconds, 2),
        "p50_ms": round(late[len(late) // 2], 1),
        "p95_ms": round(late[int(0.95 * len(late))], 1),
        "most_ms": round(late[-1], 1),
        "end_ms": round(1000 * (drawn[-1][0] - stamps.times[-1]), 1),
        "kilobytes": round(received[0] / 1000, 1),
        "updates": len(drawn),
    }


def main() -> None:
    with served() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        found = {str(tokens): measure(browser, site, tokens, "slow") for tokens in (300, 1000)}
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
