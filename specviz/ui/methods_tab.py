"""Methods: a table of all methods, measured here on chosen prompts at a click.

The work is the bench's, step by step. The engine is taken for one step at a time, a second or so, so that other visitors'
runs come in between; whoever computes has it alone, so every clock stays true.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specviz import catalog
from specviz.catalog import CatalogError
from specviz.decode import Limits, RunError
from specviz.drafters import METHODS
from specviz.measure import Measurement
from specviz.session import ModelError
from specviz.ui.examples import EXAMPLES
from specviz.ui.form import PLAIN, Ask, AskError, Offer, read
from specviz.ui.run import PATIENCE, Engine, Stopped, Turn, told
from specviz.verify import LOSSLESS
from specviz.views import methods as view
from specviz.weights import trained

OWN = "own"  # the prompt of the form, beside the examples
PROMPTS = {name: (one["prompt"], one["template"] == "raw") for name, one in EXAMPLES.items() if "temperature" not in one}
MAX_NEW = 128  # tokens a prompt
PASSES = 2  # repeats of each number of rows: quick rather than to the last per cent
USUAL = {"prompts": ["story", "copy", "code", "maths"], "max_new": 32}
PAUSE = 0.02  # seconds between two steps: enough for whoever waits for the engine to get it
FRAME = 0.2  # seconds between two updates of the page
IDLE = {"state": "idle", "say": {"key": "methods.st.idle"}}

_JS = """
const start = () => window.specviz && window.specviz.methods
  ? window.specviz.methods.mount(element, props, watch, {
      measure: (asked) => trigger("measure", asked), halt: () => trigger("halt"), again: () => trigger("again"),
    })
  : setTimeout(start, 20);
start();
"""


class MethodsView(gr.HTML):
    """value: what views.methods.table() gives, with "state", "say" and "bar". known: what is known without measuring.

    Events: measure, data {"methods", "prompts", "max_new"}; halt; again: whether what was to stop has ended.
    """

    def __init__(self, value: dict[str, Any] | None = None, *, known: dict[str, Any] | None = None, **keywords: Any):
        super().__init__(
            value, html_template='<div class="sv sv-methods"></div>', js_on_load=_JS, apply_default_css=False, known=known or {}, **keywords
        )

    def get_block_name(self) -> str:
        return "html"

    def postprocess(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class TableAsk:
    """One measurement, asked for and checked."""

    asks: dict[str, Ask]  # method -> its settings, all alike but for the knobs; plain first
    prompts: tuple[tuple[str, bool], ...]  # (text, raw)
    limits: Limits

    @property
    def common(self) -> Ask:
        return self.asks[PLAIN]


def read_table(offer: Offer, sent: Sequence[Any], asked: Any) -> TableAsk:
    """sent: the form as a client posted it; asked: data of the event. Nothing in either is believed. Raises AskError."""
    if not isinstance(asked, Mapping) or len(sent) != len(offer.fields):
        raise AskError("page.err.form")
    methods, prompts, most = asked.get("methods"), asked.get("prompts"), asked.get("max_new")
    for names in (methods, prompts):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise AskError("page.err.form")
    for name in methods:
        if name not in offer.methods:
            raise AskError("page.err.method", given=name)
    for name in prompts:
        if name != OWN and name not in PROMPTS:
            raise AskError("page.err.choice", name="example", given=name)
    if not methods or not prompts:
        raise AskError("methods.err.none")
    if type(most) is not int or not 1 <= most <= MAX_NEW:
        raise AskError("page.err.whole", name="max_new", low=1, high=MAX_NEW, given=most)
    form = dict(zip(offer.fields, sent, strict=True))
    asks = {
        name: read(offer, list((form | {"methods": [name] if name != PLAIN else []}).values()))
        for name in (PLAIN, *offer.methods)
        if name == PLAIN or name in methods
    }
    common = asks[PLAIN]  # a blank seed was drawn once for each
    asks = {name: replace(ask, sampling=common.sampling) for name, ask in asks.items()}
    if OWN in prompts and not common.prompt.strip():
        raise AskError("methods.err.own")
    texts = PROMPTS | {OWN: (common.prompt, common.raw)}
    return TableAsk(asks, tuple(texts[name] for name in dict.fromkeys(prompts)), Limits(most, common.limits.stop))


class Table:
    """One measurement while it grows. The worker alone writes; `value` is replaced as a whole."""

    def __init__(self, target: str = ""):
        self.target = target  # as it was asked for
        self.stop, self.done = threading.Event(), threading.Event()
        self.measured: Measurement | None = None
        self.refused: dict[str, dict[str, Any]] = {}  # method -> why not: a key of the page's strings, and what fills its gaps
        self.value: dict[str, Any] = {"state": "busy", "say": {"key": "methods.st.start"}}

    def say(self, key: str, state: str = "busy", bar: float | None = None, **facts: Any) -> None:
        found = self.measured
        rows = {name: row for name in found.methods if (row := found.row(name))} if found else {}
        about = found.about() if found else {}
        self.value = view.table(about, rows, self.refused, asked=self.target, state=state, say={"key": key, **facts}, bar=bar)


def work(table: Table, ask: TableAsk, engine: Engine) -> None:
    """The worker. Ends within one round of decoding once table.stop is set, and always sets table.done."""
    try:
        _measure(table, ask, engine)
        table.say("methods.st.done", "done")
    except Stopped:
        table.say("methods.st.stopped", "stopped")
    except (CatalogError, ModelError, RunError) as error:  # each is one sentence for the visitor
        table.say(**told(error), state="refused")
    except Exception:
        traceback.print_exc()  # for the operator: the page must not show paths or code
        table.say("page.st.failed", "refused")
    finally:
        table.done.set()


def _measure(table: Table, ask: TableAsk, engine: Engine) -> None:
    def progress(fraction: float, sentence: str) -> None:
        if table.stop.is_set():
            raise Stopped
        table.say("page.st.loading", bar=float(fraction), text=str(sentence))

    common = ask.common
    with Turn(engine.lock, table.stop):
        target = engine.load_target(common.target, common.device, common.dtype, progress)
        makers: dict[str, Callable[[], Any]] = {}
        for name, one in ask.asks.items():
            makers[name] = partial(engine.load_drafter, target, name, one.knobs.get(name, {}), progress)
            try:
                makers[name]()
            except (CatalogError, ModelError) as error:  # said in its row; the others go on
                table.refused[name] = told(error)
                del makers[name]
            if table.stop.is_set():  # loading may have measured what a pass costs, which takes longer than it reports
                raise Stopped
    how = {"rule": common.rule, "halted": table.stop.is_set, "passes": PASSES}
    table.measured = Measurement(target, makers, ask.prompts, common.sampling, ask.limits, **how)
    steps = list(table.measured.steps())
    for number, step in enumerate(steps):
        if step.method in table.refused:
            continue
        facts = {"method": step.method, "n": step.prompt + 1, "of": len(ask.prompts)}
        table.say(f"methods.st.{step.kind}", bar=number / len(steps), **facts)
        try:
            with Turn(engine.lock, table.stop):
                step.work()
        except RunError as error:
            if step.method in ("", PLAIN):
                raise
            table.refused[step.method] = told(error)
        except Stopped:
            raise
        except Exception:  # a method at fault must not cost the others their rows
            if step.method in ("", PLAIN):
                raise
            traceback.print_exc()
            table.refused[step.method] = {"key": "methods.failed"}
        if table.stop.wait(PAUSE):
            raise Stopped


def drain(table: Table) -> Iterator[dict[str, Any]]:
    """Yields the value whenever it is new, at most once every FRAME seconds. Closing the generator stops the work."""
    shown = None
    try:
        while True:
            over, value = table.done.is_set(), table.value
            if value is not shown:
                shown = value
                yield value
            if over:
                return
            table.done.wait(FRAME)
    finally:
        table.stop.set()


class Tab:
    """What the listeners share. Measurements are found by session alone, and one that its visitor starts anew or leaves is stopped."""

    def __init__(self, offer: Offer, engine: Engine):
        self.offer, self.engine = offer, engine
        self._lock = threading.Lock()
        self._live: dict[str | None, Table] = {}

    def measure(self, request: gr.Request, event: gr.EventData, *sent: Any) -> Iterator[Any]:
        try:
            ask = read_table(self.offer, sent, event._data)
        except AskError as error:
            yield self._refusal(request.session_hash, error)
            return
        table = Table(ask.common.target)
        with self._lock:
            if (earlier := self._live.get(request.session_hash)) is not None:
                earlier.stop.set()
            self._live[request.session_hash] = table
        threading.Thread(target=work, args=(table, ask, self.engine), daemon=True).start()
        yield from drain(table)
        yield gr.skip()

    def halt(self, request: gr.Request) -> Any:
        """Stop: ends the visitor's measurement within a round and shows what there is."""
        table, now = self._live.get(request.session_hash), {"at": time.monotonic()}  # an equal value would not reach the page
        if table is None:
            return IDLE | now
        table.stop.set()
        over = table.done.wait(PATIENCE)
        # not over: a step is going on that cannot be broken off, and the page asks again
        return {**table.value, **now} if over else {**table.value, **now, "say": {"key": "methods.st.stopping"}, "bar": None}

    def leave(self, session: str | None) -> None:
        with self._lock:
            if (table := self._live.pop(session, None)) is not None:
                table.stop.set()

    def _refusal(self, session: str | None, error: AskError) -> dict[str, Any]:
        """What is on screen stays; only the line above it changes."""
        kept = self._live.get(session)
        return {**(kept.value if kept else {}), "state": "refused", "say": {"key": error.key, **error.facts}, "bar": None}


def known(offer: Offer) -> dict[str, Any]:
    """What the table tells without measuring: facts of each method, how its weights for each target were trained, what is usual."""
    methods = {
        name: {"paper": METHODS[name].paper, "lossless": METHODS[name].lossless, "needs": METHODS[name].needs}
        for name in (PLAIN, *offer.methods)
    }
    targets: dict[str, dict[str, Any]] = {}
    for spec in filter(None, map(catalog.spec, offer.targets)):
        folders = {name: catalog.weights_folder(spec, name) for name in offer.methods}
        found = {name: trained(folder) for name, folder in folders.items() if folder}
        targets[spec.name] = {name: {"trained": facts} for name, facts in found.items() if facts}
    usual = {**USUAL, "examples": list(PROMPTS), "methods": list(offer.methods)}
    return {"methods": methods, "targets": targets, "usual": usual, "exact": sorted(LOSSLESS)}


def build(demo: gr.Blocks, offer: Offer, engine: Engine, form: Any) -> None:
    """Draws and wires the tab where it is called."""
    tab = Tab(offer, engine)
    values = list(form.components.values())
    shown = MethodsView(IDLE, known=known(offer), elem_id="methods-view")
    private = {"api_visibility": "private"}
    asked = shown.measure(
        tab.measure,
        values,
        shown,
        preprocess=False,  # read_table() checks what was sent
        concurrency_id="methods",
        concurrency_limit=1,
        trigger_mode="once",
        show_progress="minimal",
        show_progress_on=shown,
        **private,
    )
    shown.halt(tab.halt, None, shown, cancels=[asked], queue=False, show_progress="hidden", **private)
    shown.again(tab.halt, None, shown, queue=False, show_progress="hidden", **private)
    for name in ("target", "rule"):
        js = f"(name) => {{ window.specviz.methods.choose('{name}', name); return []; }}"
        form.components[name].change(None, form.components[name], js=js, show_progress="hidden", **private)

    def leave(request: gr.Request) -> None:
        tab.leave(request.session_hash)

    demo.unload(leave)
