"""What a drafter adds to its target: parameters, bytes, and how they were trained. Whatever both share is the target's own."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

TEXT = 300  # characters kept of a command


@dataclass(frozen=True)
class Extra:
    parameters: int
    bytes: int  # in memory, in the format in which they compute


def extra(drafter: Any, target: Any) -> Extra:
    """Of the modules that the drafter holds, in drafters, models and makers inside it too, without tensors that the target holds."""
    seen = {key for key, _ in _tensors(target)}
    parameters = size = 0
    for key, tensor in _tensors(drafter):
        if key not in seen:
            seen.add(key)
            parameters += tensor.numel()
            size += tensor.numel() * tensor.element_size()
    return Extra(parameters, size)


def _tensors(holder: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """(which memory, weights): parameters of modules, and weights that were packed, which are no parameters any more."""
    for module in _modules(holder, {}):
        for part in module.modules():
            for value in (*part.parameters(recurse=False), *vars(part).values()):
                # a map of ids or a table of angles is nothing that was trained
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    yield id(value) if value.is_mkldnn else value.untyped_storage().data_ptr(), value


def _modules(holder: Any, visited: dict[int, Any]) -> Iterator[nn.Module]:
    """visited: what was gone through, by id; holding on to it keeps an id from being given to something else meanwhile."""
    if id(holder) in visited:
        return
    visited[id(holder)] = holder
    if isinstance(holder, nn.Module):
        yield holder
        return
    if isinstance(holder, (list, tuple)):
        parts = holder
    elif isinstance(holder, functools.partial):
        parts = [*holder.args, *holder.keywords.values()]
    elif dataclasses.is_dataclass(holder) and not isinstance(holder, type):
        parts = vars(holder).values()
    else:
        parts = ()
    for one in list(parts):
        yield from _modules(one, visited)


def trained(folder: Path) -> dict[str, Any] | None:
    """How the weights in a folder came about, from their config.json; None where it holds none. Unknown facts are left out.

    Keys: parameters; bytes (of the file); answer_tokens, conversations (trained on); agree (share of held-out positions, in the
    target's own answers where there are some, at which the first drafted token is the target's best); command (the last one).
    """
    file = folder / "model.safetensors"
    try:
        facts = json.loads((folder / "config.json").read_text("utf-8"))
        found: dict[str, Any] = {"bytes": file.stat().st_size}
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict):
        return found
    found |= {key: facts[key] for key in ("parameters", "answer_tokens", "conversations") if _count(facts.get(key))}
    held_out = facts.get("held_out")
    for answers in ("own", "text"):
        report = held_out.get(answers) if isinstance(held_out, Mapping) else None
        agree = report.get("agree") if isinstance(report, Mapping) else None
        agree = agree[0] if isinstance(agree, list) and agree else agree  # by depth
        if isinstance(agree, float) and 0 <= agree <= 1:
            found.setdefault("agree", agree)
    commands = facts.get("commands") or [facts.get("command")]
    if isinstance(commands, list) and isinstance(commands[-1], str):
        found["command"] = commands[-1][:TEXT]
    return found


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0
