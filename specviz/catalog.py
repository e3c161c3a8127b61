"""models.yaml -> specs -> loaded Target and Drafter, each loaded once per process.

What may be loaded: the entries of models.yaml, and, only where the caller allows paths, local folders and GGUF files. Weights are
safetensors; code that comes with a model is never run. Every refusal is a CatalogError, one sentence that names the model as the
user did: paths of this machine go to the log alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specviz import fetch as sources
from specviz import pace
from specviz.drafters import METHODS, Drafter, Knob, knobs
from specviz.gguf_import import GgufError
from specviz.heads import draft as draft_head
from specviz.kept import Beside, Latest
from specviz.load import DEVICES, DTYPES, check_vocabularies, load, pick_device, pick_dtype
from specviz.session import ModelError, Target
from specviz.specs import ROOT, CatalogError, TargetSpec, available, head_folder, path_of, short, spec, targets, unknown

__all__ = [
    "DEVICES",
    "DTYPES",
    "ROOT",
    "CatalogError",
    "TargetSpec",
    "available",
    "fetch",
    "is_head",
    "load_drafter",
    "load_target",
    "spec",
    "targets",
    "unknown",
    "weights_folder",
]

Progress = Callable[[float, str], None]


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Puts an entry of models.yaml on this machine, once; returns its folder."""
    found = spec(name)
    if found is None:
        raise unknown(name, False)
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
    path = None if found else path_of(name, allow_paths)
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

    Raises CatalogError: there is no way in which weights that failed to load become a run without them. Weights are read once for
    each loaded target, and so is measured, for a drafter that chooses the size of its trees, what rows and draft passes cost there.
    """
    if method not in METHODS:
        raise CatalogError(f"There is no method {short(method)}; choose one of {', '.join(METHODS)}.")
    cls = METHODS[method]
    known = {knob.name: knob for knob in knobs(cls)}
    for name in values:
        if name not in known:
            raise CatalogError(f"{method} has no setting {short(name)}; it has {', '.join(known) or 'none'}.")
    chosen = {name: knob.default for name, knob in known.items()} | {name: _checked(method, known[name], values[name]) for name in values}
    fields = _fields(target, cls, chosen, draft, progress or _quiet, allow_paths)
    return cls(**fields, **chosen, **_costs(target, cls, chosen, fields, progress or _quiet))


def _fields(target: Target, cls: type, chosen: dict[str, Any], draft: str, progress: Progress, allow_paths: bool) -> dict[str, Any]:
    """What a drafter is made of, beside its knobs."""
    if cls.needs == "head":
        progress(0.95, f"Loading the weights of {cls.name}")
        return _weights(cls, target, target, _folder(target, cls.name, draft, allow_paths))
    if cls.needs == "target":
        return {"model": target}
    if cls.needs == "":
        return {}
    model, d2t = _draft(target, cls.name, draft, progress, allow_paths)
    fields = {"model": model, "d2t": d2t}
    for knob in knobs(cls):  # a setting may need weights of its own
        if wanted := knob.heads.get(chosen[knob.name]):
            setting = f"{knob.name} {chosen[knob.name]}"
            fields |= _weights(cls, target, model, _further(target, cls.name, setting, wanted, draft))
    return fields


def _costs(target: Target, cls: type, chosen: dict[str, Any], fields: dict[str, Any], progress: Progress) -> dict[str, float]:
    """What a row and a draft pass cost, for a drafter that chooses the size of its trees by it.

    A size that was named needs no measurement, and its runs are the same on every machine.
    """
    wanted = {one.name for one in dataclasses.fields(cls)} & {"row_cost", "draft_cost"}
    if not wanted or chosen.get("size"):  # 0 stands for a size that follows from the costs
        return {}

    def heard() -> bool:  # progress raises where whoever asked has gone, so that nobody waits for what nobody wants
        progress(0.97, "Measuring what a row costs here")
        return False

    seconds = _WITH.get(target.model, "rows", lambda: pace.rows(target, halted=heard))
    costs = {"row_cost": pace.row_cost(seconds)}
    if "draft_cost" in wanted:
        key = ("draft_cost", cls, *(id(value) for value in fields.values()))  # of weights that are kept with the target
        costs["draft_cost"] = _WITH.get(target.model, key, lambda: pace.draft_cost(target, cls(**fields, **costs), seconds, heard))
    return {name: cost for name, cost in costs.items() if name in wanted and cost is not None}


def _checked(method: str, knob: Knob, value: Any) -> Any:
    try:
        return knob.check(value)
    except ValueError as error:
        raise CatalogError(f"{method}: {error}") from None


def _draft(target: Target, method: str, draft: str, progress: Progress, allow_paths: bool) -> tuple[Target, torch.Tensor | None]:
    if draft == "auto":
        named = _named(target, method)
        if "head" in named:
            return _trained_draft(target, head_folder(target.name, named["head"]))
        draft = named["target"]
    elif spec(draft) is None and is_head(path := path_of(draft, allow_paths)):
        return _trained_draft(target, path)
    model = load_target(draft, target.device, target.dtype, progress, allow_paths=allow_paths)
    with _one_error():
        check_vocabularies(target, model)
    return model, None


def _named(target: Target, method: str) -> dict[str, str]:
    """What models.yaml lists of a method for a target."""
    found = spec(target.name)
    if found is None or method not in found.drafters:
        what = "draft model is" if METHODS[method].needs == "model" else f"weights of {method} are"
        raise CatalogError(f"No {what} listed for {target.name}; name one, or choose a method that needs none, such as prompt_lookup.")
    return found.drafters[method]


def is_head(folder: Path) -> bool:
    """Whether a folder holds weights trained for some target, rather than a model that stands alone."""
    try:
        return "model_type" not in json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _trained_draft(target: Target, folder: Path) -> tuple[Target, torch.Tensor]:
    if not (folder / "model.safetensors").is_file():
        raise _untrained(target, "draft_model", folder)
    return _read(target, "draft_model", folder, lambda: draft_head.load(folder, target), draft_head.load)


def _folder(target: Target, method: str, draft: str, allow_paths: bool) -> Path:
    """Where the trained weights of a method lie."""
    if draft == "auto":
        return head_folder(target.name, _named(target, method)["head"])
    if spec(draft) is not None:
        raise CatalogError(f"{draft} is a model; {method} needs a folder with weights that were trained for {target.name}.")
    return path_of(draft, allow_paths, "folder of weights")


def _further(target: Target, method: str, setting: str, wanted: str, draft: str) -> Path:
    """Where the weights that a setting needs lie: named in models.yaml, or beside the draft that was named by its path."""
    listed = spec(target.name)
    named = listed.drafters.get(method, {}).get(wanted) if listed and draft == "auto" else None
    folder = head_folder(target.name, named) if named else Path(draft).parent / wanted
    if (named or (draft != "auto" and spec(draft) is None)) and folder.is_dir():
        return folder
    raise CatalogError(
        f"{method} with {setting} needs the trained weights {wanted}, which {target.name} lacks here; choose another setting."
    )


def _weights(cls: type, target: Target, model: Target, folder: Path) -> dict[str, Any]:
    """The fields of a drafter that come from trained weights. model: whose hidden states they read, the target or its draft."""
    if not folder.is_dir():
        raise _untrained(target, cls.name, folder)
    return _read(target, cls.name, folder, lambda: cls.load(folder, model), cls)


def _read(target: Target, method: str, folder: Path, load: Callable[[], Any], *key: Hashable) -> Any:
    """What `load` returns, read once for a target; whatever is wrong with the files is one sentence."""

    def read() -> Any:
        try:
            return load()
        except ModelError as error:
            raise CatalogError(str(error)) from None
        except (
            OSError,
            EOFError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RuntimeError,
            pickle.PickleError,
            SafetensorError,
        ) as e:
            kind = type(e).__name__
            raise CatalogError(
                f"The weights of {method} in {folder.name} are damaged or of another kind ({kind}); copy or train them again."
            ) from None

    return _WITH.get(target.model, (*key, str(folder.resolve())), read)


def weights_folder(target: Target, method: str, draft: str = "auto") -> Path | None:
    """Where load_drafter reads trained weights from; None where the method needs none, or a whole model drafts."""
    listed = spec(target.name)
    named = listed.drafters.get(method, {}) if listed and draft == "auto" else {}
    if "head" in named:
        return head_folder(target.name, named["head"])
    folder = None if draft == "auto" or spec(draft) else Path(draft)
    return folder if folder and (METHODS[method].needs == "head" or is_head(folder)) else None


def _untrained(target: Target, method: str, folder: Path) -> CatalogError:
    return CatalogError(
        f"The folder {folder.name} holds no trained weights of {method} for {target.name} (config.json and model.safetensors); train them."
    )


_LOADED = Latest(4)  # models
_WITH = Beside()  # target -> the weights trained for it, and what a row costs there


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    try:
        yield
    except (sources.FetchError, GgufError, ModelError) as error:
        raise CatalogError(str(error)) from None


def _quiet(fraction: float, sentence: str) -> None:
    pass
