"""Drafters: one file a method, one line a method in METHODS below.

A drafter is a dataclass whose fields with metadata are its knobs; forms, command line and checks are built from them.
The loop never asks which method it holds. Rules a drafter must keep to are in the docstring of `specviz.tree`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from specviz.drafters.draft_model import DraftModel
from specviz.drafters.plain import Plain
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.tree import Draft
from specviz.verify import Coins, Verdict

METHODS: dict[str, type] = {cls.name: cls for cls in (Plain, DraftModel, PromptLookup)}


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

    def check(self, value: Any) -> Any:
        """The value, or ValueError with one sentence."""
        if self.kind == "choice":
            if value not in self.choices:
                raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, not {str(value)[:20]!r}.")
        elif self.kind == "bool":
            if not isinstance(value, bool):
                raise ValueError(f"{self.name} must be true or false, not {str(value)[:20]!r}.")
        else:
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not self.min <= value <= self.max or (self.kind == "int" and value != int(value)):
                what = "a whole number" if self.kind == "int" else "a number"
                raise ValueError(f"{self.name} must be {what} from {self.min:g} to {self.max:g}, not {str(value)[:20]}.")
            return int(value) if self.kind == "int" else float(value)
        return value


def knobs(method: type) -> list[Knob]:
    """The fields of a drafter that a user may set: those that carry metadata."""
    found = []
    for f in dataclasses.fields(method):
        if not f.metadata:
            continue
        choices = tuple(f.metadata.get("choices", ()))
        kind = "choice" if choices else {bool: "bool", int: "int", float: "float"}[type(f.default)]
        found.append(
            Knob(f.name, kind, f.default, f.metadata.get("min"), f.metadata.get("max"), f.metadata.get("step"), choices, f.metadata["help"])
        )
    return found


def knob_values(drafter: Drafter) -> dict[str, Any]:
    return {knob.name: getattr(drafter, knob.name) for knob in knobs(type(drafter))}
