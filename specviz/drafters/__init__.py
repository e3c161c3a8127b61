"""Drafters: one file a method, one line a method in METHODS below.

A drafter is a dataclass whose fields with metadata are its knobs; forms, command line and checks are built from them.
The loop never asks which method it holds. Rules a drafter must keep to are in the docstring of `specviz.tree`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from specviz.drafters.draft_model import DraftModel
from specviz.drafters.draft_tree import DraftTree
from specviz.drafters.eagle1 import Eagle1
from specviz.drafters.eagle2 import Eagle2
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.early_exit import EarlyExit
from specviz.drafters.hybrid import Hybrid, Lookups
from specviz.drafters.lookahead import Lookahead
from specviz.drafters.medusa import Medusa
from specviz.drafters.mtp import Mtp
from specviz.drafters.plain import Plain
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.drafters.suffix import Suffix
from specviz.drafters.token_recycling import TokenRecycling
from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.tree import Draft
from specviz.verify import Coins, Verdict

METHODS: dict[str, type] = {
    cls.name: cls
    for cls in (
        Plain,
        DraftModel,
        DraftTree,
        PromptLookup,
        Suffix,
        TokenRecycling,
        Lookahead,
        EarlyExit,
        Medusa,
        Mtp,
        Eagle1,
        Eagle2,
        Eagle3,
        Lookups,
        Hybrid,
    )
}


@dataclass
class State:
    """What a drafter may read. The loop alone writes it."""

    ids: list[int]  # committed so far, prompt included
    new: int  # how many of them came in the last iteration
    room: int  # deepest node that limit and context still allow
    sampling: Sampling
    coins: Coins
    stop_ids: tuple[int, ...]
    vocab: int
    hidden: dict[int, torch.Tensor] = field(default_factory=dict)  # tap -> float[L, H] of ids[:-1]

    def law(self, logits: torch.Tensor, path: list[int]) -> torch.Tensor:
        """float32[V]: the draft law after the committed ids and `path`, under the run's own settings."""
        history = [torch.tensor(self.ids + path)] if self.sampling.reads_history else []
        return self.sampling.probs(logits[None], history)[0]


class Drafter(Protocol):
    name: ClassVar[str]
    paper: ClassVar[str]
    lossless: ClassVar[bool]
    shape: str  # what it proposes: "none" | "chain", every draft one path without probes | "tree". Knobs may decide
    needs: ClassVar[str]  # "": nothing | "model": a draft model | "head": trained weights | "target": the target itself

    @property
    def source(self) -> str: ...  # name of the draft model, "" where there is none

    # needs "head": the fields that are read from a folder of weights (ModelError where they do not fit), by `load`.
    # Every method: an untrained small one for any target, by `tiny`; tests hold it to all laws.
    @classmethod
    def load(cls, folder: Path, target: Any) -> dict[str, Any]: ...
    @classmethod
    def tiny(cls, target: Any) -> Drafter: ...

    def taps(self, config: Any) -> tuple[int, ...]: ...  # layers of the target whose hidden states it reads
    def begin(self, state: State) -> None: ...  # once, after the target's prefill
    def propose(self, state: State) -> Draft: ...
    def accept(self, state: State, verdict: Verdict, scores: Scores) -> None: ...  # state already holds the new ids


@dataclass(frozen=True)
class Knob:
    name: str
    kind: str  # "int" | "float" | "bool" | "choice"
    default: Any
    min: float | None
    max: float | None
    step: float | None
    choices: tuple[str, ...]
    help: str
    heads: Mapping[str, str] = field(default_factory=dict)  # choice -> name of the trained weights that it needs, which load() reads

    def check(self, value: Any) -> Any:
        """The value as the drafter takes it, or ValueError with one sentence."""
        if self.kind in ("choice", "bool"):
            allowed = self.choices if self.kind == "choice" else (True, False)
            # 1 equals True, and a list equals nothing that could be chosen
            if not any(type(one) is type(value) and one == value for one in allowed):
                raise ValueError(f"{self.name} must be {self.range}, not {_brief(value)}.")
            return value
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and (isinstance(value, int) or math.isfinite(value))
        low, high = (limit if limit is not None else sign * 2**53 for limit, sign in ((self.min, -1), (self.max, 1)))
        if not number or not low <= value <= high or (self.kind == "int" and value != int(value)):
            raise ValueError(f"{self.name} must be {self.range}, not {_brief(value)}.")
        return int(value) if self.kind == "int" else float(value)

    def parse(self, text: str) -> Any:
        """`text` as the command line gives it, checked. Raises ValueError like check()."""
        if self.kind == "choice":
            return self.check(next((one for one in self.choices if str(one) == text), text))
        if self.kind == "bool":
            return self.check({"true": True, "false": False}.get(text, text))
        try:
            return self.check(float(text) if self.kind == "float" else int(text))
        except ValueError:
            raise ValueError(f"{self.name} must be {self.range}, not {_brief(text)}.") from None

    @property
    def range(self) -> str:
        """In words, what check() accepts."""
        if self.kind == "choice":
            return f"one of {', '.join(map(str, self.choices))}"
        if self.kind == "bool":
            return "true or false"
        what = "a whole number" if self.kind == "int" else "a number"
        if self.min is not None and self.max is not None:
            return f"{what} from {self.min:g} to {self.max:g}"
        return what + ("" if self.min is None else f" of at least {self.min:g}") + ("" if self.max is None else f" of at most {self.max:g}")


def _brief(value: Any) -> str:
    """A few letters of whatever somebody sent; a number of thousands of digits has no text that Python would make."""
    if isinstance(value, int) and abs(value) > 2**63:
        return "a huge number"
    return repr(value[:20] if isinstance(value, str) else value)[:24]


def knobs(method: type) -> list[Knob]:
    """The fields of a drafter that a user may set: those that carry metadata."""
    found = []
    for f in dataclasses.fields(method):
        if not f.metadata:
            continue
        choices = tuple(f.metadata.get("choices", ()))
        kind = "choice" if choices else {bool: "bool", int: "int", float: "float"}[type(f.default)]
        found.append(
            Knob(
                name=f.name,
                kind=kind,
                default=f.default,
                **{key: f.metadata.get(key) for key in ("min", "max", "step")},
                choices=choices,
                help=f.metadata["help"],
                heads=f.metadata.get("heads", {}),
            )
        )
    return found


def knob_values(drafter: Drafter) -> dict[str, Any]:
    return {knob.name: getattr(drafter, knob.name) for knob in knobs(type(drafter))}
