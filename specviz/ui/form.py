"""What a visitor sent -> a checked Ask, or one sentence. No Gradio here: any client may post anything to the server."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.decode import Limits
from specviz.sampling import COLDEST, Sampling

PLAIN = "plain"
MAX_METHODS = 3  # beside plain
MAX_PROMPT = 20_000  # characters; the target's context is the real limit and is checked by decode()
MAX_STOPS = 8
MAX_STOP = 64  # characters
SEEDS = 2**31  # a blank seed is drawn below this


class AskError(ValueError):
    """One sentence for the visitor: `key` names it in the page's table of strings, `facts` fill its gaps."""

    def __init__(self, key: str, **facts: Any):
        self.key, self.facts = key, {name: _short(value) for name, value in facts.items()}
        super().__init__(key)


@dataclass(frozen=True)
class Offer:
    """What the page offers; nothing outside of it is accepted from a client."""

    targets: tuple[str, ...]
    methods: Mapping[str, Sequence[Any]]  # method -> its knobs (drafters.Knob), plain left out
    rules: tuple[str, ...]
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    max_new: int = 1024
    capture: int = 8  # entries kept a row in inspect mode

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the form's values in the order in which a client sends them."""
        return (
            *("prompt", "target", "methods", "rule", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"),
            *("max_new", "stop", "template", "mode", "device", "dtype"),
            *(f"{method}.{knob.name}" for method, knobs in self.methods.items() for knob in knobs),
        )


@dataclass(frozen=True)
class Ask:
    """One run, asked for and checked."""

    target: str
    methods: tuple[str, ...]  # plain first
    knobs: dict[str, dict[str, Any]]  # method -> its knobs
    rule: str
    sampling: Sampling
    limits: Limits
    prompt: str
    raw: bool
    capture: int
    device: str
    dtype: str


def read(offer: Offer, sent: Sequence[Any]) -> Ask:
    """Raises AskError. A blank seed is replaced by a random one, which the trace then records."""
    if len(sent) != len(offer.fields):
        raise AskError("page.err.form")
    value = dict(zip(offer.fields, sent, strict=True))
    prompt = _text("prompt", value["prompt"], MAX_PROMPT)
    methods = value["methods"]
    if not isinstance(methods, list) or not all(isinstance(one, str) for one in methods):
        raise AskError("page.err.form")
    for one in methods:
        if one not in offer.methods:
            raise AskError("page.err.method", given=one)
    chosen = tuple(name for name in offer.methods if name in methods)
    if len(chosen) > MAX_METHODS:
        raise AskError("page.err.lanes", most=MAX_METHODS)
    temperature = _number("temperature", value["temperature"], 0, 5)
    if 0 < temperature < COLDEST:
        raise AskError("page.err.cold", least=COLDEST)
    sampling = Sampling(
        temperature=temperature,
        top_k=_whole("top_k", value["top_k"], 0, 10**6),
        top_p=_number("top_p", value["top_p"], 0.01, 1),
        min_p=_number("min_p", value["min_p"], 0, 1),
        repetition_penalty=_number("repetition_penalty", value["repetition_penalty"], 0.5, 5),
        seed=_seed(value["seed"]),
    )
    return Ask(
        target=_one_of("target", value["target"], offer.targets),
        methods=(PLAIN, *chosen),
        knobs={name: {knob.name: _knob(name, knob, value[f"{name}.{knob.name}"]) for knob in offer.methods[name]} for name in chosen},
        rule=_one_of("rule", value["rule"], offer.rules),
        sampling=sampling,
        limits=Limits(max_new=_whole("max_new", value["max_new"], 1, offer.max_new), stop=_stops(value["stop"])),
        prompt=prompt,
        raw=_one_of("template", value["template"], ("chat", "raw")) == "raw",
        capture=offer.capture if _one_of("mode", value["mode"], ("inspect", "measure")) == "inspect" else 0,
        device=_one_of("device", value["device"], offer.devices),
        dtype=_one_of("dtype", value["dtype"], offer.dtypes),
    )


def _knob(method: str, knob: Any, value: Any) -> Any:
    name = f"{method}.{knob.name}"
    if knob.kind == "bool":
        if not isinstance(value, bool):
            raise AskError("page.err.value", name=name, given=value)
        return value
    if knob.kind == "choice":
        return _one_of(name, value, tuple(knob.choices))
    low = -(10**9) if knob.min is None else knob.min
    high = 10**9 if knob.max is None else knob.max
    return _whole(name, value, low, high) if knob.kind == "int" else _number(name, value, low, high)


def _number(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise AskError("page.err.number", name=name, low=low, high=high, given=value)
    return float(value)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high or value != int(value):
        raise AskError("page.err.whole", name=name, low=low, high=high, given=value)
    return int(value)


def _text(name: str, value: Any, most: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AskError("page.err.value", name=name, given=value)
    if len(value) > most:
        raise AskError("page.err.long", name=name, most=most, given=len(value))
    # A lone surrogate is valid in a JSON string but in no text that a tokenizer could encode.
    return value.encode("utf-8", "replace").decode("utf-8")


def _seed(value: Any) -> int:
    """What the visitor wrote; blank: a new one each time."""
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return secrets.randbelow(SEEDS)
        value = int(value) if value.isascii() and value.isdigit() and len(value) <= 16 else value
    elif value is None:
        return secrets.randbelow(SEEDS)
    return _whole("seed", value, 0, 2**53)


def _stops(value: Any) -> tuple[str, ...]:
    """One stop string a line; backslash-n stands for a line break."""
    lines = [one.replace("\\n", "\n") for one in _text("stop", value, MAX_STOPS * (MAX_STOP + 2)).split("\n") if one]
    if len(lines) > MAX_STOPS or any(len(one) > MAX_STOP for one in lines):
        raise AskError("page.err.stops", most=MAX_STOPS, length=MAX_STOP)
    return tuple(dict.fromkeys(lines))


def _one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    for one in allowed:
        if type(one) is type(value) and one == value:
            return one
    raise AskError("page.err.choice", name=name, given=value)


def _short(value: Any) -> str | int | float:
    if isinstance(value, int) and abs(value) <= 2**53:
        return value
    text = repr(value) if not isinstance(value, (str, int)) else str(value)[:41] if isinstance(value, str) else "a huge number"
    return text if len(text) <= 40 else text[:40] + "…"
