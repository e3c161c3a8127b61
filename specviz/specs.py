"""Names -> entries of models.yaml or paths: which targets there are, where their weights come from, what drafts for each."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specviz.drafters import METHODS

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
    drafters: dict[str, dict[str, str]]  # method -> {"target": entry} | {"head": folder under assets/heads/<name>}, and further weights


def targets(root: Path = ROOT) -> list[TargetSpec]:
    """All entries of models.yaml, the default one first; one that comes with the project only where its folder came too."""
    listed = yaml.safe_load((root / "models.yaml").read_text("utf-8"))
    specs = [
        TargetSpec(name, one["label"], one["note"], one["license"], tuple(one["sources"]), one["drafters"])
        for name, one in listed["targets"].items()
        if not all("folder" in source and not (root / source["folder"]).is_dir() for source in one["sources"])
    ]
    return sorted(specs, key=lambda spec: spec.name != listed["default"])


def spec(name: str) -> TargetSpec | None:
    return next((one for one in targets() if one.name == name), None)


def head_folder(target: str, head: str) -> Path:
    """Where trained weights of an entry of models.yaml lie."""
    return ROOT / "assets" / "heads" / target / head


def available(spec: TargetSpec | None, method: str) -> bool:
    """Whether the method can draft for this target: what needs no weights always can; weights that are listed must be here."""
    if METHODS[method].needs in ("", "target"):
        return True
    named = spec.drafters.get(method) if spec else None
    return named is not None and ("head" not in named or (head_folder(spec.name, named["head"]) / "config.json").is_file())


def path_of(name: Any, allowed: bool, what: str = "model") -> Path:
    """The folder or file that a user names. Never looked at unless paths are allowed."""
    if not allowed or not isinstance(name, str) or not name or "\0" in name or len(name) > 4096:
        raise unknown(name, allowed, what)
    path = Path(name)
    with contextlib.suppress(OSError):  # a part too long, or a folder that may not be entered
        if ".." not in path.parts and (path.is_dir() or (what == "model" and path.is_file())):
            return path
    raise unknown(name, allowed, what)


def unknown(name: Any, paths: bool, what: str = "model") -> CatalogError:
    if what != "model":
        more = "; give the path of an existing one, without '..'" if paths else ""
        return CatalogError(f"There is no {what} {short(name)}{more}.")
    known = ", ".join(one.name for one in targets())
    more = ", or the path of an existing folder or GGUF file, without '..'" if paths else ""
    return CatalogError(f"There is no model {short(name)}; choose one of {known}{more}.")


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
