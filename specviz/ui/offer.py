"""What this copy of the page offers: the catalog's targets (and the operator's own), methods, rules, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specviz import catalog
from specviz.choose import drafts
from specviz.drafters import METHODS, knobs
from specviz.ui.examples import EXAMPLES
from specviz.ui.form import MAX_METHODS, PLAIN, Offer
from specviz.ui.run import Engine
from specviz.verify import RULES

TICKED = ("draft_model", "eagle3", "prompt_lookup")  # at first, as far as they fit the first target


@dataclass(frozen=True)
class Setup:
    """All that page.build() needs. notes: target -> {"note", "missing": methods it has no drafter for, "chat"}."""

    offer: Offer
    engine: Engine
    labels: dict[str, str]
    notes: dict[str, dict[str, Any]]
    defaults: dict[str, Any]


def from_catalog(path: str = "", draft: Sequence[str] = (), device: str = "", dtype: str = "") -> Setup:
    """path, draft: a folder or GGUF file of the operator's own, offered first, and what drafts for it, each NAME or METHOD=NAME.

    device, dtype: fixed by the operator where given. Raises ValueError where `draft` cannot be told apart.
    """
    specs = catalog.targets()
    own = (Path(path).name or Path(path).resolve().name) if path else ""  # "." has no name; spelled as the catalog spells it
    labels = ({own: own} if own else {}) | {spec.name: spec.label for spec in specs}
    drafting = drafts(draft, list(METHODS)) if own else {}
    notes = {spec.name: {"note": spec.note, "missing": [name for name in METHODS if not catalog.available(spec, name)]} for spec in specs}
    if own:
        notes[own] = {"note": {}, "missing": [name for name in METHODS if name not in drafting and not catalog.available(None, name)]}

    def load_target(name: str, device: str, dtype: str, progress: Any) -> Any:
        return catalog.load_target(path if name == own else name, device, dtype, progress, allow_paths=name == own)

    def load_drafter(target: Any, method: str, values: dict[str, Any], progress: Any) -> Any:
        chosen = drafting.get(method, "auto") if target.name == own else "auto"
        return catalog.load_drafter(target, method, values, chosen, progress, allow_paths=chosen != "auto")

    return arrange(
        list(labels),
        labels,
        notes,
        Engine(load_target, load_drafter),
        (device,) if device else devices(),
        (dtype,) if dtype else catalog.DTYPES,
        TICKED,
    )


def arrange(
    targets: list[str],
    labels: dict[str, str],
    notes: dict[str, Any],
    engine: Engine,
    devices: tuple[str, ...] = ("auto",),
    dtypes: tuple[str, ...] = ("auto",),
    ticked: Sequence[str] = ("draft_model", "prompt_lookup"),
) -> Setup:
    """A Setup with the defaults that follow from what is offered. ticked: methods chosen at first."""
    offer = Offer(
        targets=tuple(targets),
        methods={name: tuple(knobs(cls)) for name, cls in METHODS.items() if name != PLAIN},
        rules=tuple(RULES),
        devices=devices,
        dtypes=dtypes,
    )
    missing = notes.get(targets[0], {}).get("missing", [])
    defaults = {
        "prompt": EXAMPLES["story"]["prompt"],
        "target": targets[0],
        "methods": [name for name in ticked if name in offer.methods and name not in missing][:MAX_METHODS],
        "rule": offer.rules[0],
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "repetition_penalty": 1,
        "seed": "",
        "max_new": 128,
        "stop": "",
        "template": "chat",
        "mode": "inspect",
        "device": devices[0],
        "dtype": dtypes[0],
        **{f"{method}.{knob.name}": knob.default for method, listed in offer.methods.items() for knob in listed},
    }
    return Setup(offer, engine, labels, notes, defaults)


def devices() -> tuple[str, ...]:
    found = ["auto", "cpu"]
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return tuple(found) if len(found) > 2 else ("cpu",)
