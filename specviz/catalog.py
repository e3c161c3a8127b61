"""models.yaml -> specs -> loaded Target and Drafter, each loaded once per process.

What may be loaded: the entries of models.yaml, and, only where the caller allows paths, local folders and GGUF files. Weights are
safetensors; code that comes with a model is never run. Every refusal is a CatalogError, one sentence that names the model as the
user did: paths of this machine go to the log alone.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError

from specviz import fetch as sources
from specviz.drafters import METHODS, Drafter, Knob, knobs
from specviz.gguf_import import GgufError
from specviz.heads import draft as draft_head
from specviz.load import DEVICES, DTYPES, check_vocabularies, load, pick_device, pick_dtype
from specviz.session import ModelError, Target

__all__ = ["DEVICES", "DTYPES", "CatalogError", "TargetSpec", "fetch", "load_drafter", "load_target", "spec", "targets"]

Progress = Callable[[float, str], None]

ROOT = Path(__file__).resolve().parent.parent


class CatalogError(ValueError):
    """One sentence for the user: what cannot be loaded, why, and what to do."""


@dataclass(frozen=True)
class TargetSpec:
    name: str
    label: str
    note: dict[str, str]  # language -> sentence
    license: str
    sources: tuple[dict[str, Any], ...]
    drafters: dict[str, dict[str, str]]  # method -> {"target": entry} | {"head": folder under assets/heads/<name>}


def targets(root: Path = ROOT) -> list[TargetSpec]:
    """All entries of models.yaml, the default one first."""
    listed = yaml.safe_load((root / "models.yaml").read_text("utf-8"))
    specs = [
        TargetSpec(name, one["label"], one["note"], one["license"], tuple(one["sources"]), one["drafters"])
        for name, one in listed["targets"].items()
    ]
    return sorted(specs, key=lambda spec: spec.name != listed["default"])


def spec(name: str) -> TargetSpec | None:
    return next((one for one in targets() if one.name == name), None)


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Puts an entry of models.yaml on this machine, once; returns its folder."""
    found = spec(name)
    if found is None:
        raise _unknown(name, False)
    with _one_error():
        return sources.fetch(found.name, found.sources, sources.cache_folder(), progress or _quiet)


def load_target(
    name: str, device: str = "auto", dtype: str = "auto", progress: Progress | None = None, *, allow_paths: bool = False
) -> Target:
    """A target by its name in models.yaml or, where `allow_paths`, by the path of a folder or GGUF file. Thread safe.

    device: auto, cpu, cuda, cuda:N, mps; dtype: auto (float32 on a CPU), float32, bfloat16, float16. progress is called with a
    fraction and a sentence, and may raise to give up.
    """
    progress = progress or _quiet
    found = spec(name) if isinstance(name, str) else None
    path = None if found else _path(name, allow_paths)
    shown = found.name if found else path.name or path.resolve().name
    with _one_error():
        chosen = pick_device(device)
        kind = pick_dtype(dtype, chosen)

    def read() -> Target:
        with _one_error():
            if found:
                folder = sources.fetch(found.name, found.sources, sources.cache_folder(), progress)
            elif path.is_file():
                folder = sources.import_gguf(path, sources.cache_folder(), progress)
            else:
                folder = path
            progress(0.95, f"Loading {shown}")
            return load(folder, shown, chosen, kind)

    return _LOADED.get((found.name if found else str(path.resolve()), chosen, kind), read)


def load_drafter(
    target: Target, method: str, values: dict[str, Any], draft: str = "auto", progress: Progress | None = None, *, allow_paths: bool = False
) -> Drafter:
    """A fresh drafter of `method` with checked knobs. draft: auto (what models.yaml names for the target), another entry, a path.

    Raises CatalogError: there is no way in which a draft model that failed to load becomes a run without one.
    """
    if method not in METHODS:
        raise CatalogError(f"There is no method {_short(method)}; choose one of {', '.join(METHODS)}.")
    cls = METHODS[method]
    known = {knob.name: knob for knob in knobs(cls)}
    for name in values:
        if name not in known:
            raise CatalogError(f"{method} has no setting {_short(name)}; it has {', '.join(known) or 'none'}.")
    checked = {name: _checked(method, known[name], value) for name, value in values.items()}
    if cls.needs != "model":
        return cls(**checked)
    model, d2t = _draft(target, method, draft, progress or _quiet, allow_paths)
    return cls(model=model, d2t=d2t, **checked)


def _checked(method: str, knob: Knob, value: Any) -> Any:
    try:
        return knob.check(value)
    except OverflowError:  # a whole number too large for any comparison with a fraction
        raise CatalogError(f"{method}: {knob.name} must be from {knob.min:g} to {knob.max:g}.") from None
    except ValueError as error:
        raise CatalogError(f"{method}: {error}") from None


def _draft(target: Target, method: str, draft: str, progress: Progress, allow_paths: bool) -> tuple[Target, torch.Tensor | None]:
    if draft == "auto":
        found = spec(target.name)
        named = found.drafters.get(method) if found else None
        if named is None:
            raise CatalogError(
                f"No draft model is listed for {target.name}; name one, or choose a method that needs none, such as prompt_lookup."
            )
        if "head" in named:
            return _head(target, ROOT / "assets" / "heads" / target.name / named["head"])
        draft = named["target"]
    elif spec(draft) is None and _is_head(path := _path(draft, allow_paths)):
        return _head(target, path)
    model = load_target(draft, target.device, target.dtype, progress, allow_paths=allow_paths)
    with _one_error():
        check_vocabularies(target, model)
    return model, None


def _is_head(folder: Path) -> bool:
    """Whether a folder holds weights trained for some target, rather than a model that stands alone."""
    try:
        return "model_type" not in json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _head(target: Target, folder: Path) -> tuple[Target, torch.Tensor]:
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise CatalogError(
            f"The folder {folder.name} holds no trained draft for {target.name} (config.json and model.safetensors); train one."
        )

    def read() -> tuple[Target, torch.Tensor]:
        try:
            with _one_error():
                return draft_head.load(folder, target)
        except (OSError, KeyError, TypeError, json.JSONDecodeError, SafetensorError) as error:
            raise CatalogError(f"The trained draft in {folder.name} is damaged ({type(error).__name__}); copy or train it again.") from None

    return _LOADED.get((target.model, str(folder.resolve())), read)


class _Loaded:
    """The models of this process, the longest unused dropped first. One load at a time: two would fight for memory."""

    def __init__(self, most: int):
        self.most, self.lock, self.values = most, threading.RLock(), OrderedDict()

    def get(self, key: Hashable, load: Callable[[], Any]) -> Any:
        with self.lock:
            found = self.values.get(key) or load()
            self.values[key] = found
            self.values.move_to_end(key)
            while len(self.values) > self.most:
                self.values.popitem(last=False)
        return found


_LOADED = _Loaded(4)


def _path(name: Any, allowed: bool) -> Path:
    """The folder or file that a user names. Never looked at unless paths are allowed."""
    if not allowed or not isinstance(name, str) or not name or "\0" in name or len(name) > 4096:
        raise _unknown(name, allowed)
    path = Path(name)
    with contextlib.suppress(OSError):  # a part too long, or a folder that may not be entered
        if ".." not in path.parts and (path.is_dir() or path.is_file()):
            return path
    raise _unknown(name, allowed)


def _unknown(name: Any, paths: bool) -> CatalogError:
    known = ", ".join(one.name for one in targets())
    more = ", or the path of an existing folder or GGUF file, without '..'" if paths else ""
    return CatalogError(f"There is no model {_short(name)}; choose one of {known}{more}.")


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    try:
        yield
    except (sources.FetchError, GgufError, ModelError) as error:
        raise CatalogError(str(error)) from None


def _quiet(fraction: float, sentence: str) -> None:
    pass


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
