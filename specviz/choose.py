"""What the command line chooses: methods, what drafts for each, and the settings of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specviz.drafters import METHODS, knobs
from specviz.specs import available, spec


def chosen(a, methods: str) -> dict[str, str]:
    """method -> what drafts for it ("auto": what models.yaml names). Refuses a setting that has no effect on any of them."""
    names = listed(methods)
    for name in names:
        if name not in METHODS and name != "all":
            raise ValueError(f"There is no method {name[:40]!r}; choose one of {', '.join(METHODS)}.")
    named = drafts(a.draft, list(METHODS) if "all" in names else names)
    if "all" in names:
        names = fitting(a.target, named)
    used = {dest for name in names for knob in knobs(METHODS[name]) for dest in dests(name, knob.name)}
    for dest, text in vars(a).items():
        if dest.startswith("knob.") and text is not None and dest not in used:
            option = dest.removeprefix("knob.")
            option = option if "." in option else option.replace("_", "-")
            raise ValueError(f"--{option} has no effect on {', '.join(names)}; leave it out.")
    for name in names:
        knob_values(a, name)
    return {name: named.get(name, "auto") for name in names}


def drafts(given: Sequence[str], methods: Sequence[str]) -> dict[str, str]:
    """method -> what --draft names for it. A name without a method is a draft model, or the weights of the one method that takes some."""
    found: dict[str, str] = {}
    bare = []
    for word in given:
        method, equals, name = word.partition("=")
        if not equals or method not in METHODS:
            bare.append(word)
        elif method not in methods or METHODS[method].needs not in ("model", "head"):
            raise ValueError(f"--draft {method}=… has no effect here; leave it out.")
        else:
            found[method] = located(name)
    takers = [name for name in methods if METHODS[name].needs in ("model", "head") and name not in found]
    models = [name for name in takers if METHODS[name].needs == "model"]
    takers = models or takers
    for word in bare:
        if word != "auto":
            if not takers or len(bare) > 1 or (len(takers) > 1 and not models):
                known = ", ".join(takers) or "none of the chosen methods"
                raise ValueError(f"--draft {Path(word).name[:60]!r} could be for {known}; write --draft METHOD=NAME.")
            found |= dict.fromkeys(takers, located(word))
    return found


def fitting(target: str, named: Mapping[str, str]) -> list[str]:
    """Every method that can draft for the target with what is here or named; the others are told of on stderr."""
    found = spec(target)
    names = [name for name in METHODS if name in named or available(found, name)]
    if missing := [name for name in METHODS if name not in names]:
        print(f"left out, since {Path(target).name} has no weights for them here: {', '.join(missing)}", file=sys.stderr)
    return names


def knob_values(a, method: str) -> dict[str, Any]:
    """Those knobs of the method that were given on the command line, its own name for one before the shared one."""
    values = {}
    for knob in knobs(METHODS[method]):
        text = next((text for dest in dests(method, knob.name) if (text := getattr(a, dest, None)) is not None), None)
        if text is not None:
            try:
                values[knob.name] = knob.parse(text)
            except ValueError as error:
                raise ValueError(f"{method}: {error}") from None
    return values


def dests(method: str, knob: str) -> tuple[str, str]:
    """Names in the parsed arguments of one method's knob: its own, and the one that methods share."""
    return f"knob.{method}.{knob}", f"knob.{knob}"


def listed(names: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def located(name: str) -> str:
    """A path as the catalog takes it, without steps upwards: here it is the user's own shell that names it."""
    return str(Path(name).resolve()) if Path(name).exists() else name
