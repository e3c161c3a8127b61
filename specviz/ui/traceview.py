"""TraceView: the two views of a run, race and inspect, as one component of the page.

The template is constant and nothing is ever put into it: the framework compiles a template after filling it in, so a
token such as `${…}` would run. All nodes are made in the browser by textContent and setAttribute (assets/web/*.js).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

from specviz.trace import Trace
from specviz.views.detail import detail

WEB = Path(__file__).parents[2] / "assets" / "web"
SCRIPTS = (
    *("core", "bytes", "store", "shape", "lane", "race", "charts", "card", "strip", "tree", "mask", "map", "drafted"),
    *("inspect", "round", "mount"),
)
STYLES = ("base", "race", "inspect", "tree")
LANGUAGES = ("en", "zh")
NAME = 200  # characters: more is no name of a run or lane
MOUNT = """
const start = () => window.specviz && window.specviz.mount
  ? window.specviz.mount(element, props, watch, server, (data) => trigger("pick", data))
  : setTimeout(start, 20);
start();
"""

Lookup = Callable[[str, str], Trace | None]


class TraceView(gr.HTML):
    """view: "race" | "inspect". lookup(run, lane) -> the record of a run, also while it grows, or None.

    value: the growing string of `views.stream` lines. Views of one page with the same `channel` share what they were sent.
    """

    def __init__(
        self, view: str = "race", lookup: Lookup | None = None, *, value: str = "", lang: str = "en", channel: str = "main", **keywords: Any
    ):
        keywords = {"padding": False, "apply_default_css": False, **keywords}
        super().__init__(
            value=value,
            html_template='<div class="sv-root"></div>',
            css_template="",
            js_on_load=MOUNT,
            server_functions=[asker(lookup)] if lookup else None,
            view=view,
            lang=lang,
            channel=channel,
            **keywords,
        )

    def api_info(self) -> dict[str, Any]:
        return {"type": "string"}


def asker(lookup: Lookup) -> Callable[[Any], dict[str, Any]]:
    """The server function `iteration_detail`. Anybody may call it with anything, so nothing is believed."""

    def iteration_detail(asked: Any) -> dict[str, Any]:
        if not isinstance(asked, dict):
            return {"error": "request"}
        run, lane, index = asked.get("run"), asked.get("lane"), asked.get("index")
        if not all(isinstance(name, str) and 0 < len(name) <= NAME for name in (run, lane)):
            return {"error": "request"}
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            return {"error": "request"}
        trace = lookup(run, lane)
        if trace is None:
            return {"error": "gone"}
        if index >= len(trace.iterations):
            return {"error": "index"}
        return detail(trace.header, trace.iterations[index])

    return iteration_detail


def table(lang: str) -> dict[str, str]:
    """The strings of the page in one language, all tables merged. Raises ValueError for two tables with the same key."""
    if lang not in LANGUAGES:
        raise ValueError(f"the page speaks {', '.join(LANGUAGES)}, not {lang!r}")
    merged: dict[str, str] = {}
    for path in sorted((WEB / "i18n").glob(f"*.{lang}.json")):
        strings = json.loads(path.read_text("utf-8"))
        if twice := merged.keys() & strings.keys():
            raise ValueError(f"{path.name} repeats {sorted(twice)[0]!r}")
        merged |= strings
    return merged


@cache
def head() -> str:
    """For launch(head=...): style, scripts and strings inline, so that the page asks for no further file."""
    style = "\n".join((WEB / f"{name}.css").read_text("utf-8") for name in STYLES)
    core, *rest = [(WEB / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    # "<" as an escape: no string can end the script element
    tables = json.dumps({lang: table(lang) for lang in LANGUAGES}, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    script = "\n".join([core, f"window.specviz.tables = {tables};", *rest])
    return f"<style>{style}</style><script>{script}</script>"
