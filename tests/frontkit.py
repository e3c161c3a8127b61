"""What the browser tests of the two views share: recorded runs, a small app that serves them, and a page on it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from urllib.parse import urlparse

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr

from specviz import trace as tr
from specviz.ui.traceview import TraceView, head
from specviz.views import stream
from tests import traces, treetraces, wild

TITLE = "front test"


def long_run(rounds: int) -> tr.Trace:
    return traces.run(*[4] * rounds, drafted=4)


SAMPLED = wild.sampled()
RUNS = {
    "wild": {"plain": wild.plain(SAMPLED), "draft_model": SAMPLED},
    "greedy": {"plain": wild.plain(wild.greedy(SAMPLED)), "draft_model": wild.greedy(SAMPLED)},
    "block": {"plain": wild.plain(SAMPLED), "draft_model": wild.block(SAMPLED)},
    "bare": {"draft_model": wild.bare(SAMPLED)},
    "fixed": {"prompt_lookup": wild.fixed(SAMPLED)},
    "fallback": {"draft_model": wild.empty_residual(SAMPLED)},
    "cut": {"draft_model": wild.cut()},
    "lossy": {"draft_model": tr.Trace(wild.header(lossless=False), SAMPLED.iterations)},
    "fixedtree": {"draft_model": treetraces.fixed()},
    "drawntree": {"draft_model": treetraces.drawn()},
    "suretree": {"draft_model": treetraces.greedy()},
    "widetree": {"draft_model": treetraces.wide()},
    "probes": {"draft_model": treetraces.probes()},
    "typical": {"draft_model": treetraces.typical()},
    "medusa": {"draft_model": treetraces.of("medusa")},
    "long": {"plain": traces.run(*[0] * 1000, plain=True), "draft_model": long_run(200)},
}
NOTES = {
    "refused": stream.run("refused", {"plain": "Plain"}) + stream.note("", "refused", "No model named <b>x</b>."),
    "stopped": stream.run("stopped", {"plain": "Plain"})
    + stream.head("plain", RUNS["wild"]["plain"].header)
    + stream.step("plain", RUNS["wild"]["plain"].header, RUNS["wild"]["plain"].iterations[0])
    + stream.note("plain", "stopped"),
}


@contextlib.contextmanager
def served():
    """The address of an app with both views; ?trace= names what it shows, the button sends the long run bit by bit."""
    count = itertools.count()

    def lookup(run, lane):
        return RUNS.get(run.split("-")[0], {}).get(lane)

    def show(request: gr.Request):
        name = request.query_params.get("trace", "wild")
        return NOTES.get(name) or stream.replay(name, RUNS[name], {"plain": "Plain <i>lane</i>"})

    def grow():
        """The same run line by line, a few at a time, as the page would send it."""
        value = ""
        for k, line in enumerate(stream.replay(f"long-{next(count)}", RUNS["long"]).splitlines(keepends=True)):
            value += line
            if k % 150 == 0:
                yield value
                time.sleep(0.2)
        yield value

    with gr.Blocks(title=TITLE) as demo:
        go = gr.Button("go", elem_id="go")
        picked = gr.Textbox(elem_id="picked")
        race = TraceView("race", lookup, elem_id="race")
        TraceView("inspect", lookup, elem_id="inspect")

        def on_pick(event: gr.EventData):
            return json.dumps(event._data, sort_keys=True)

        race.pick(on_pick, outputs=picked)
        demo.load(show, outputs=race)
        go.click(grow, outputs=race, show_progress="hidden")
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, head=head(), server_name="127.0.0.1")
    yield url
    demo.close()


class Page:
    """A page on one recorded run, with what it asked for and complained about."""

    def __init__(self, browser, address, query="", width=1280, height=900, ready="specviz.stats.inspect.shown.endsWith('full')", **context):
        self.context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US", **context)
        self.page = self.context.new_page()
        self.hosts, self.errors = set(), []
        self.page.on("request", lambda request: self.hosts.add(urlparse(request.url).hostname))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append("dialog"))
        self.page.goto(address + "?" + query)
        self.wait(ready)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def wait(self, condition):
        self.page.wait_for_function(f"window.specviz && specviz.stats.run && ({condition})", timeout=60_000)

    def js(self, code):
        return self.page.evaluate(code)

    def text(self, selector):
        return self.page.locator(selector).first.text_content()

    @property
    def at(self):
        stats_now = self.js("specviz.stats.inspect")
        return stats_now["lane"], stats_now["index"], stats_now["token"]

    def go(self, index, token=None, lane="draft_model"):
        """Chooses as a click on the race view does, and waits for the record of that choice."""
        choice = json.dumps({"lane": lane, "index": index, "token": -1 if token is None else token})
        self.js(f"window.dispatchEvent(new CustomEvent('specviz:pick', {{detail: {choice}}}))")
        end = f"specviz.stats.inspect.shown.startsWith('{lane}/{index}/') && specviz.stats.inspect.shown.endsWith('full')"
        self.wait(end + (f" && specviz.stats.inspect.token === {token}" if token is not None else ""))
