"""The page: one Blocks app over one run record. build() lays it out and wires it; launch() starts the server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from specviz.trace import MAX_BYTES, TraceError
from specviz.ui import charts_tab, controls, files, methods_tab, traceview
from specviz.ui.form import AskError, Offer, read
from specviz.ui.offer import Setup
from specviz.ui.parts import Files, Header, Status
from specviz.ui.run import PATIENCE, Engine, Run, drain, work
from specviz.ui.store import Store
from specviz.ui.traceview import TraceView

ASSETS = Path(__file__).parents[2] / "assets"
SHELL = ("page", "methods")  # style and script each
QUEUE = 16  # visitors waiting at most, beside the one whose run decodes
NAMES = 80  # characters of the names of opened files
SESSIONS = 300  # visitors whose last values the server keeps
TITLE = "specviz · speculative decoding · 投机解码"

# No fonts from elsewhere: everything must work without a network.
THEME = gr.themes.Default(
    primary_hue=gr.themes.colors.blue,
    neutral_hue=gr.themes.colors.slate,
    font=[
        "system-ui",
        "-apple-system",
        "Segoe UI",
        "Roboto",
        "Noto Sans",
        "Noto Sans CJK SC",
        "PingFang SC",
        "Microsoft YaHei",
        "sans-serif",
    ],
    font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Noto Sans Mono CJK SC", "monospace"],
)


class Page:
    """What the listeners share: the offer, the engine and the records of all visitors, the latter found by session alone."""

    def __init__(self, offer: Offer, engine: Engine, store: Store):
        self.offer, self.engine, self.store = offer, engine, store

    def run(self, request: gr.Request, *sent: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """One run, streamed. `sent`: what the client posted, unchecked, in the order of offer.fields."""
        try:
            ask = read(self.offer, sent)
        except AskError as error:
            yield gr.skip(), refusal(error)
            return
        run = Run({method: f"page.method.{method}" for method in ask.methods})
        self.store.begin(request.session_hash, run)
        threading.Thread(target=work, args=(run, ask, self.engine), daemon=True).start()
        for text, status in drain(run):
            yield text or gr.skip(), status
        # The framework sends the last values once more in full when a generator ends: make them nothing.
        yield gr.skip(), gr.skip()

    def halt(self, request: gr.Request) -> tuple[Any, dict[str, Any]]:
        """Stop: ends the visitor's run within one iteration and shows what there is. A queued entry is removed by `cancels`."""
        run, now = self.store.live(request.session_hash), {"at": time.monotonic()}  # an equal value would not reach the page
        if run is None or (run.done.is_set() and run.status["state"] != "stopped"):
            return gr.skip(), {"key": "page.st.idle", "state": "idle", **now}
        run.stop.set()
        stopping = {"key": "page.st.stopping", "state": "busy"}
        # One iteration is short; reading a long prompt or measuring a pass is not, and cannot be broken off: the page asks again.
        over = run.done.wait(PATIENCE)
        return "".join(run.lines) if run.headers else gr.skip(), {**(run.status if over else stopping), **now}

    def open(self, request: gr.Request, paths: list[str] | None) -> tuple[Any, dict[str, Any]]:
        """Uploaded traces, checked, on screen; or one sentence, with what was on screen left alone."""
        live = self.store.live(request.session_hash)
        try:
            if live is not None and not live.done.is_set():
                raise AskError("page.err.busy")
            if not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
                raise AskError("page.err.form")
            lanes = files.opened([Path(one) for one in paths])
        except AskError as error:
            return gr.skip(), refusal(error)
        except TraceError as error:
            return gr.skip(), {"key": "page.st.refused", "state": "refused", "text": str(error)}
        run = files.recorded(lanes, self.labels(lanes))
        self.store.begin(request.session_hash, run)
        names = ", ".join(Path(one).name for one in paths)
        shown = names if len(names) <= NAMES else names[:NAMES] + "…"
        return "".join(run.lines), {"key": "page.st.uploaded", "state": "done", "file": shown}

    def export_text(self, run_id: Any) -> str:
        """The file of a run, for whoever knows its id."""
        run = self.store.find(run_id) if isinstance(run_id, str) else None
        return files.text_of(run.traces) if run is not None else ""

    def labels(self, lanes: Any) -> dict[str, str]:
        return {lane: f"page.method.{lane}" for lane in lanes if lane == "plain" or lane in self.offer.methods}


def refusal(error: AskError) -> dict[str, Any]:
    return {"key": error.key, "state": "refused", **error.facts}


def build(setup: Setup, traces: Path = ASSETS / "traces") -> gr.Blocks:
    """traces: folder of recorded runs, the first of which the page opens with. The head it needs is left in `demo.page_head`."""
    offer = setup.offer
    page = Page(offer, setup.engine, Store())
    shown = files.bundled(traces, page.labels((*offer.methods, "plain")))
    if shown is not None:
        page.store.fix(shown)
    idle = {"key": "page.st.recorded" if shown else "page.st.empty", "state": "idle"}

    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as demo:
        header = Header(elem_id="header")
        form = controls.build(offer, setup.labels, setup.defaults)
        with gr.Row(elem_classes="pg-go", equal_height=True):
            go = form.extra("run", gr.Button("Run", variant="primary", elem_id="run", scale=0, min_width=110), prop="value")
            stop = form.extra("stop_run", gr.Button("Stop", variant="stop", elem_id="stop", scale=0, min_width=120), prop="value")
            status = Status(idle, elem_id="status", scale=1, min_width=240)
            Files(page.export_text, elem_id="files", scale=0, min_width=100)
            upload = form.extra(
                "upload",
                gr.UploadButton(
                    "Open trace",
                    file_count="multiple",
                    file_types=[".jsonl"],
                    type="filepath",  # not read before its size is known
                    size="md",
                    elem_id="upload",
                    scale=0,
                    min_width=100,
                ),
            )
        with gr.Tabs(selected="race", elem_id="tabs") as tabs:
            with form.extra("tab_race", gr.Tab("Race", id="race", render_children=True)):
                race = TraceView("race", page.store.lookup, value="".join(shown.lines) if shown else "", elem_id="race")
            with form.extra("tab_inspect", gr.Tab("Inspect", id="inspect")):
                TraceView("inspect", page.store.lookup, elem_id="inspect")
            with form.extra("tab_charts", gr.Tab("Charts", id="charts")):
                charts_tab.build(page.store)
            with form.extra("tab_methods", gr.Tab("Methods", id="methods")):
                methods_tab.build(demo, offer, setup.engine, form)
        values, dressed = list(form.components.values()), [*form.components.values(), *form.extras.values()]
        wire(demo, page, form, values, dressed, header=header, go=go, stop=stop, status=status, race=race, tabs=tabs, upload=upload)
    demo.queue(max_size=QUEUE, api_open=False, default_concurrency_limit=4)
    demo.page_head = traceview.head() + head(form.spec(offer, setup.defaults, setup.notes))
    return demo


def wire(demo, page: Page, form, values, dressed, *, header, go, stop, status, race, tabs, upload) -> None:
    """Every listener. Those with `fn=None` run in the browser and never reach the server."""
    private = {"api_visibility": "private", "show_progress": "hidden"}
    browser = partial(dict, fn=None, **private)

    asked = gr.on(
        [go.click, form.components["prompt"].submit],
        page.run,
        values,
        [race, status],
        js="(...values) => { window.specviz.page.started(); return values; }",
        preprocess=False,  # form.read() checks what was sent, and says what is wrong with it in one sentence
        concurrency_id="engine",
        concurrency_limit=1,
        trigger_mode="once",
        show_progress="minimal",
        show_progress_on=status,
        api_visibility="private",
    )
    stop.click(page.halt, None, [race, status], js="() => window.specviz.page.stopping()", cancels=[asked], queue=False, **private)
    status.again(page.halt, None, [race, status], queue=False, **private)
    upload.upload(page.open, [upload], [race, status], queue=False, **private)

    async def leave(request: gr.Request) -> None:
        page.store.leave(request.session_hash)
        # The framework takes a closed tab's entry out of the queue only when it happens to notice in time.
        await demo._queue.clean_events(session_hash=request.session_hash)

    demo.unload(leave)

    dress = "(...values) => window.specviz.page.dress(...values)"
    demo.load(**browser(js="() => window.specviz.page.restore()"), outputs=values).then(**browser(js=dress), inputs=values, outputs=dressed)
    header.lang(**browser(js=dress), inputs=values, outputs=dressed)
    moved = [form.components[name].change for name in ("target", "methods", "temperature")]
    gr.on(moved, **browser(js=dress), inputs=values, outputs=dressed)
    gr.on([one.change for one in values], **browser(js="(...values) => window.specviz.page.remember(...values)"), inputs=values)
    example = form.extras["example"]
    example.input(**browser(js="(name) => window.specviz.page.example(name)"), inputs=[example], outputs=values)
    race.pick(**browser(js="() => ({__type__: 'update', selected: 'inspect'})"), outputs=[tabs])


def head(spec: dict[str, Any]) -> str:
    """For launch(head=...), after the views' own: style and script of the shell, and what it must know of the form."""
    web = ASSETS / "web"
    style, script = ("\n".join((web / f"{name}.{kind}").read_text("utf-8") for name in SHELL) for kind in ("css", "js"))
    known = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c")  # no string can end the script element
    return f"<style>{style}</style><script>{script}\nwindow.specviz.page.spec = {known};</script>"


def launch(demo: gr.Blocks, **keywords: Any) -> Any:
    """demo.launch() as this page needs it: nothing public but the page, nothing from elsewhere, no details of errors."""
    return demo.launch(
        **{
            "theme": THEME,
            "head": demo.page_head,
            "favicon_path": ASSETS / "web" / "favicon.svg",
            "show_error": False,
            "footer_links": ["gradio"],
            "run_history": False,
            "enable_monitoring": False,
            "state_session_capacity": SESSIONS,
            "max_file_size": MAX_BYTES,
            "ssr_mode": False,
            "mcp_server": False,
            "pwa": False,
            **keywords,
        }
    )
