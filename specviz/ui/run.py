"""One run: a worker thread that decodes and writes lines, and a drain that shows them a few times a second.

The drain never runs inside a lane's clock, and speed is computed from the recorded seconds, never from arrival on the page.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from specviz.catalog import CatalogError
from specviz.decode import Limits, RunError, decode
from specviz.race import race
from specviz.sampling import Sampling
from specviz.session import ModelError
from specviz.trace import Header, Iteration, Trace
from specviz.ui.form import Ask
from specviz.views import stream

FRAME = 0.09  # seconds between two updates of the page; with their own time, ten updates a second
WARM_UP = 6  # tokens
PATIENCE = 5  # seconds that the answer to Stop waits for the end


class Stopped(Exception):
    """Leaves a model load or a run early, because the visitor stopped it or went away."""


@dataclass(frozen=True)
class Engine:
    """What a run needs from outside: the catalog's functions, and the lock that lets one run compute at a time."""

    load_target: Callable[..., Any]  # (name, device, dtype, progress) -> Target
    load_drafter: Callable[..., Any]  # (target, method, knob values, progress) -> Drafter
    lock: Any = field(default_factory=threading.Lock)
    warm: set[tuple[str, str, str, str]] = field(default_factory=set)  # what has computed once in this process


class Run:
    """The record of one run while it grows. The worker alone writes; everybody else reads whole lines and whole iterations."""

    def __init__(self, labels: dict[str, str], run_id: str = ""):
        self.id = run_id or secrets.token_urlsafe(12)
        self.labels = labels
        self.headers: dict[str, Header] = {}
        self.iterations: dict[str, list[Iteration]] = {lane: [] for lane in labels}
        self.lines: list[str] = [stream.run(self.id, labels)]
        self.stop, self.done = threading.Event(), threading.Event()
        self.status: dict[str, Any] = {"key": "page.st.start", "state": "busy"}
        self.touched = time.monotonic()

    def trace(self, lane: str) -> Trace | None:
        header = self.headers.get(lane)
        return None if header is None else Trace(header, list(self.iterations[lane]))

    @property
    def traces(self) -> dict[str, Trace]:
        found = {lane: self.trace(lane) for lane in self.labels}
        return {lane: trace for lane, trace in found.items() if trace is not None}

    def add(self, lane: str, record: Header | Iteration) -> None:
        if isinstance(record, Header):
            self.headers[lane] = record
            self.lines.append(stream.head(lane, record))
        else:
            self.iterations[lane].append(record)
            self.lines.append(stream.step(lane, self.headers[lane], record))

    def say(self, key: str, *, state: str = "busy", **facts: Any) -> None:
        self.status = {"key": key, "state": state, **facts}

    def refuse(self, error: Exception) -> None:
        """Its one sentence is shown, as plain text. In the middle of a run, what was decoded so far is kept."""
        self._end("error", str(error))
        self.lines.append(stream.note("", "error" if self.headers else "refused", str(error)))
        self.say(**told(error), state="refused")

    def fail(self) -> None:
        """Ended by a fault of the program, of which the page tells no more than that."""
        self._end("error")
        self.lines.append(stream.note("", "error"))
        self.say("page.st.failed", state="refused")

    def mark_stopped(self) -> None:
        """The partial record is kept, and says in its last iteration that it was stopped."""
        for lane in self._end("stopped"):
            self.lines.append(stream.note(lane, "stopped"))

    def _end(self, why: str, sentence: str = "") -> list[str]:
        """Marks the lanes that had not ended; returns them."""
        going = [lane for lane, done in self.iterations.items() if not (done and done[-1].stop)]
        for lane in going:
            if self.iterations[lane]:
                self.iterations[lane][-1] = replace(self.iterations[lane][-1], stop=why, message=sentence)
        return going


def told(error: Exception) -> dict[str, Any]:
    """A refusal by the key of the page's own words and what fills their gaps, where it has them; else its sentence."""
    if key := getattr(error, "key", ""):
        return {"key": f"page.run.{key}", **error.facts}
    return {"key": "page.st.refused", "text": str(error)}


def work(run: Run, ask: Ask, engine: Engine) -> None:
    """The worker. Ends within one iteration once run.stop is set, and always sets run.done."""
    try:
        with Turn(engine.lock, run.stop):
            _decode(run, ask, engine)
    except Stopped:
        run.mark_stopped()
        # with nothing of its own to show, what is on screen is another run
        run.say("page.st.stopped" if run.headers else "page.st.stopped.early", state="stopped")
    except (CatalogError, ModelError, RunError) as error:  # each is one sentence for the visitor
        run.refuse(error)
    except Exception:
        traceback.print_exc()  # for the operator: the page must not show paths or code
        run.fail()
    finally:
        run.done.set()


class Turn:
    """The engine's lock, waited for without missing a stop."""

    def __init__(self, lock: Any, stop: threading.Event):
        self.lock, self.stop = lock, stop

    def __enter__(self) -> None:
        while not self.lock.acquire(timeout=0.05):
            if self.stop.is_set():
                raise Stopped

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def _decode(run: Run, ask: Ask, engine: Engine) -> None:
    def progress(fraction: float, sentence: str) -> None:
        if run.stop.is_set():
            raise Stopped
        run.say("page.st.loading", bar=float(fraction), text=str(sentence))

    run.say("page.st.loading", text="")
    target = engine.load_target(ask.target, ask.device, ask.dtype, progress)
    drafters = {}
    for name in ask.methods:
        drafters[name] = engine.load_drafter(target, name, ask.knobs.get(name, {}), progress)
        if run.stop.is_set():  # loading may have measured what a pass costs, which takes longer than it reports
            raise Stopped
    _warm_up(run, engine, target, drafters)
    how = {"rule": ask.rule, "capture": ask.capture, "raw": ask.raw, "halted": run.stop.is_set}
    lanes = {name: decode(target, drafter, ask.prompt, ask.sampling, ask.limits, **how) for name, drafter in drafters.items()}
    where = {"device": target.device, "dtype": target.dtype, "seed": ask.sampling.seed}
    run.say("page.st.reading", **where)
    try:
        heads: list[tuple[str, Header]] = []
        for lane, record in race(lanes):
            if isinstance(record, Header):
                heads.append((lane, record))
                # All at once: when one lane is refused, what is on screen is not touched.
                if len(heads) == len(lanes):
                    for head in heads:
                        run.add(*head)
                continue
            if run.status["key"] != "page.st.running":
                run.say("page.st.running", **where)
            run.add(lane, record)
            if run.stop.is_set():
                break
    finally:
        for lane in lanes.values():
            lane.close()
    stopped = run.stop.is_set()
    if stopped:
        run.mark_stopped()
    run.lines.extend(stream.finish(run.traces))
    run.say("page.st.stopped" if stopped else "page.st.done", state="stopped" if stopped else "done", **where)


def _warm_up(run: Run, engine: Engine, target: Any, drafters: dict[str, Any]) -> None:
    """A few tokens that nobody sees, the first time a lane is used: memory and kernels are then as they stay, on every clock alike."""
    for name, drafter in drafters.items():
        key = (target.name, target.device, target.dtype, name)
        if key not in engine.warm:
            run.say("page.st.warm")
            lane = decode(target, drafter, "warm up, warm up", Sampling(), Limits(WARM_UP), capture=0, raw=True)
            for _ in lane:
                if run.stop.is_set():
                    lane.close()
                    break
            engine.warm.add(key)
        if run.stop.is_set():
            raise Stopped


def drain(run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (all lines so far, or "" while there is nothing to draw yet; status), when either is new.

    At most one update every FRAME seconds. Closing the generator stops the run.
    """
    text, sent, shown = "", 0, None
    try:
        while True:
            over, status = run.done.is_set(), run.status
            count = len(run.lines) if run.headers else 0
            if count > sent or status is not shown or over:
                text += "".join(run.lines[sent:count])
                sent, shown = count, status
                yield text, status
            if over:
                return
            run.done.wait(FRAME)
    finally:
        run.stop.set()
