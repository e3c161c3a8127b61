"""A page over table language models, served to a real browser. The engine, the queue and the page are the real ones."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import gradio as gr

from specviz.catalog import CatalogError
from specviz.drafters import METHODS
from specviz.toy import ToySession, ToyTarget, random_table
from specviz.ui import offer, page
from specviz.ui.run import Engine

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HOSTILE = [
    "<img src=x onerror=\"document.title='x'\">",
    "${Object.assign(window,{owned:1})}",
    "`",
    "<script>",
    "&lt;",
    "中",
    "{{value}}",
    "$5 ",
]


@dataclass(frozen=True)
class PagedToy(ToyTarget):
    """A toy that takes `pause` seconds a pass, counts its passes, and may have unpleasant token texts."""

    pause: float = 0.0
    hostile: bool = False
    passes: list[float] = field(default_factory=list, compare=False)

    def token_bytes(self, token: int) -> bytes:
        return HOSTILE[token % len(HOSTILE)].encode() if self.hostile else super().token_bytes(token)

    def session(self, capacity, taps=()):
        return PagedSession(self, taps)

    def encode(self, prompt: str, raw: bool) -> list[int]:
        return [ord(c) % self.vocab for c in prompt]


class PagedSession(ToySession):
    def forward(self, tokens, parents, rows_wanted=0):
        time.sleep(self.target.pause)
        self.target.passes.append(time.monotonic())
        return super().forward(tokens, parents, rows_wanted)


def toy(name: str = "toy", pause: float = 0.0, hostile: bool = False, context: int = 4096) -> PagedToy:
    return PagedToy(random_table(26, 2, 0), order=2, name=name, context=context, pause=pause, hostile=hostile)


def partly_right() -> ToyTarget:
    """A draft model that often agrees with the toy target."""
    table = 0.7 * random_table(26, 2, 0) + 0.3 * random_table(26, 2, 1)
    return ToyTarget(table.log_softmax(-1), order=2, name="toy-draft")


def drafter(target: PagedToy, method: str, values: dict) -> object:
    """Any method on a toy: a draft model that is often right, untrained weights where some are needed."""
    needs = METHODS[method].needs
    if needs == "model":
        return METHODS[method](model=partly_right(), **values)
    return METHODS[method](**values) if needs == "" else replace(METHODS[method].tiny(target), **values)


@dataclass
class Served:
    url: str
    demo: gr.Blocks
    models: dict[str, PagedToy]
    measuring: threading.Event  # set: the drafters of the target "measuring" are there at once; else they do not even listen to Stop

    @property
    def queued(self) -> int:
        return len(self.demo._queue)

    @property
    def running(self) -> bool:
        """Whether any toy made a pass in the last tenth of a second."""
        return any(one.passes and time.monotonic() - one.passes[-1] < 0.1 for one in self.models.values())


@contextlib.contextmanager
def served(traces: Path = Path("none"), **how) -> Iterator[Served]:
    models = {
        "toy": toy(),
        "slow": toy("slow", pause=0.02),
        "hostile": toy("hostile<b>", hostile=True),
        "small": toy("small", context=64),
        "measuring": toy("measuring"),
    }
    measuring = threading.Event()
    measuring.set()

    def load_target(name, device, dtype, progress):
        if name == "absent":
            progress(0.3, "Fetching the package absent")
            raise CatalogError("absent could not be fetched. Check the network connection.")
        if name == "broken":
            raise OSError("/secret/path/of/the/server")
        return models[name]

    def load_drafter(target, method, values, progress):
        if target.name == "measuring":
            progress(0.97, "Measuring")
            measuring.wait(60)
        return drafter(target, method, values)

    names = [*models, "absent", "broken"]
    setup = offer.arrange(names, {name: name.title() for name in names}, {}, Engine(load_target, load_drafter), **how)
    demo = page.build(setup, traces=traces)
    _, url, _ = page.launch(demo, prevent_thread_lock=True, quiet=True)
    try:
        yield Served(url, demo, models, measuring)
    finally:
        measuring.set()
        demo.close()


def until(condition, seconds: float = 20, step: float = 0.02) -> float:
    """Waits for a condition; returns the seconds it took. Raises AssertionError when it never holds."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if condition():
            return time.monotonic() - began
        time.sleep(step)
    raise AssertionError(f"not within {seconds} s: {condition}")
