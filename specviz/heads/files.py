"""Weights of a head on disk: config.json beside model.safetensors (or the reference's pytorch_model.bin, read with weights_only).

Published files differ in prefixes and leave out what they share with the target. What is missing, unexpected or of another
shape is refused by name, so that a half-loaded head never runs.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from specviz.session import ModelError

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "medusa_lm_head.safetensors", "medusa_lm_head.pt")


def read(folder: Path, what: str, kind: str = "") -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """(config, tensors). kind: what `train` calls it; published files do not say. Raises ModelError, which names `what` and no path."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8")) if (folder / "config.json").is_file() else {}
        file = next(folder / name for name in WEIGHTS if (folder / name).is_file())
        tensors = load_file(file) if file.suffix == ".safetensors" else torch.load(file, map_location="cpu", weights_only=True)
    except StopIteration:
        raise ModelError(f"The folder of {what} holds none of {', '.join(WEIGHTS)}; train it, or choose another folder.") from None
    except (OSError, ValueError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        raise ModelError(f"The weights of {what} are damaged ({type(error).__name__}); copy or train them again.") from None
    if not isinstance(config, dict) or not isinstance(tensors, Mapping) or not all(isinstance(t, torch.Tensor) for t in tensors.values()):
        raise ModelError(f"The files of {what} are not a table of tensors with a config.json; choose another folder.")
    if kind and config.get("kind", kind) != kind:
        raise ModelError(f"These are not the weights of {what}, but of the kind {str(config['kind'])[:20]!r}; choose another folder.")
    return config, dict(tensors)


def renamed(tensors: Mapping[str, torch.Tensor], prefixes: Sequence[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """Each key with the first prefix that it has replaced, over and over until none fits."""
    found = {}
    for key, tensor in tensors.items():
        changed = True
        while changed:
            changed = False
            for old, new in prefixes:
                if key.startswith(old) and not key.startswith(new or "\0"):
                    key, changed = new + key.removeprefix(old), True
                    break
        found[key] = tensor
    return found


def fill(module: nn.Module, tensors: Mapping[str, torch.Tensor], what: str, ignored: Iterable[str] = ()) -> None:
    """Loads exactly. Raises ModelError that lists what does not fit."""
    tensors = {key: tensor for key, tensor in tensors.items() if key not in set(ignored)}
    wanted = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
    found = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    wrong = [f"missing {key}" for key in sorted(wanted.keys() - found.keys())]
    wrong += [f"unexpected {key}" for key in sorted(found.keys() - wanted.keys())]
    wrong += [
        f"{key} is {list(found[key])}, not {list(wanted[key])}" for key in sorted(wanted.keys() & found.keys()) if wanted[key] != found[key]
    ]
    if wrong:
        raise ModelError(f"The weights of {what} do not fit: {'; '.join(wrong[:6])}.")
    module.load_state_dict({key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in tensors.items()})


def rows_of(tensors: Mapping[str, torch.Tensor], key: str, what: str) -> int:
    """Shapes tell the truth where configs do not."""
    if key not in tensors or tensors[key].ndim != 2:
        raise ModelError(f"The weights of {what} lack {key}, so they are of another kind of head.")
    return int(tensors[key].shape[0])


def target_ids(offsets: torch.Tensor | None, vocab: int, what: str) -> torch.Tensor | None:
    """int64[Vd] target id of each draft id, from `d2t` as published: the difference to the draft id."""
    if offsets is None:
        return None
    if offsets.ndim != 1 or offsets.dtype not in (torch.int64, torch.int32):
        raise ModelError(f"The map d2t of {what} is not a list of whole numbers.")
    ids = offsets.long() + torch.arange(len(offsets))
    if bool(((ids < 0) | (ids >= vocab)).any()) or len(ids.unique()) < len(ids):
        raise ModelError(f"The map d2t of {what} leads outside the target's vocabulary, or twice to one token.")
    return ids


def offsets_of(ids: torch.Tensor) -> torch.Tensor:
    """The published form of a map: target id minus draft id. int32[Vd], half of what EAGLE-3 publishes."""
    return (ids.cpu() - torch.arange(len(ids))).to(torch.int32)


def write(folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    """float16 weights under a temporary name first, then config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    small = {k: (t.to(torch.float16) if t.is_floating_point() else t).detach().cpu().contiguous() for k, t in tensors.items()}
    save_file(small, folder / "model.partial")
    (folder / "model.partial").rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
