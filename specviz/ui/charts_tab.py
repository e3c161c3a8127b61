"""Charts: Plotly figures of a finished run, drawn when the tab is looked at. Nobody pays for them who does not open it."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.ui.store import Store
from specviz.ui.traceview import table
from specviz.views import charts

# Which lane, language and theme the figures are for. It asks for them itself when it becomes visible and something changed.
_BAR = '<div class="pg-charts"><label><span data-t="page.charts.lane"></span> <select id="pg-lane"></select></label><p></p></div>'
_BAR_JS = """
const wanted = (data) => trigger("draw", data);
window.specviz.page.charts(element, props, watch, wanted);
"""
LANES = ("speed_over_time", "time_split")  # figures of all lanes together
LANE = ("accept_lengths", "by_position", "expected_tokens", "speedup_by_gamma", "time_of_rounds")  # of the chosen lane


class ChartBar(gr.HTML):
    """value: {"lanes": [[lane, label]], "lane": the one drawn}. Event: draw, data {"run", "lane", "lang", "dark"}."""

    def __init__(self, **keywords: Any):
        super().__init__({"lanes": [], "lane": ""}, html_template=_BAR, js_on_load=_BAR_JS, apply_default_css=False, **keywords)

    def get_block_name(self) -> str:
        return "html"

    def postprocess(self, value: Any) -> Any:
        return value


def build(store: Store) -> None:
    bar = ChartBar(elem_id="chartbar")
    with gr.Row():
        plots = [gr.Plot(show_label=False, container=False, min_width=320, elem_id=f"chart-{name}") for name in LANES]
    with gr.Row():
        plots += [gr.Plot(show_label=False, container=False, min_width=320, elem_id=f"chart-{name}") for name in LANE[:2]]
    with gr.Row():
        plots += [gr.Plot(show_label=False, container=False, min_width=320, elem_id=f"chart-{name}") for name in LANE[2:4]]
    plots += [gr.Plot(show_label=False, container=False, elem_id=f"chart-{name}") for name in LANE[4:]]

    def draw(event: gr.EventData) -> list[Any]:
        return figures(store, event._data)

    bar.draw(
        draw,
        None,
        [bar, *plots],
        trigger_mode="always_last",
        concurrency_limit=1,
        show_progress="minimal",
        show_progress_on=bar,
        api_visibility="private",
    )


def figures(store: Store, asked: Any) -> list[Any]:
    """[value of the bar, one figure or None a plot]. `asked` is what a client sent: nothing in it is believed."""
    asked = asked if isinstance(asked, dict) else {}
    run = store.find(asked.get("run")) if isinstance(asked.get("run"), str) else None
    nothing = [{"lanes": [], "lane": ""}, *[None] * (len(LANES) + len(LANE))]
    if run is None or not run.done.is_set():
        return nothing
    traces = {lane: trace for lane, trace in run.traces.items() if trace.iterations}
    if not traces:
        return nothing
    how = {"lang": "zh" if asked.get("lang") == "zh" else "en", "dark": asked.get("dark") is True}
    drafting = {lane: trace for lane, trace in traces.items() if trace.header.method != "plain"}
    plain = next((trace for trace in traces.values() if trace.header.method == "plain"), None)
    lane = asked.get("lane")
    if not isinstance(lane, str) or lane not in drafting:
        lane = next(iter(drafting), "")
    words = table(how["lang"])
    names = {name: words.get(run.labels.get(name, name), name) for name in traces}
    if len(set(names.values())) < len(names):  # an opened file may call its method anything
        names = {name: name for name in traces}
    found = [getattr(charts, name)({names[lane]: trace for lane, trace in traces.items()}, **how) for name in LANES]
    if lane:
        chosen = drafting[lane]
        found += [charts.accept_lengths(chosen, **how), charts.by_position(chosen, **how), charts.expected_tokens(chosen, **how)]
        found += [charts.speedup_by_gamma(chosen, plain, **how) if plain else None, charts.time_of_rounds(chosen, **how)]
    else:
        found += [None] * len(LANE)
    return [{"lanes": [[name, run.labels.get(name, name)] for name in drafting], "lane": lane}, *found]
