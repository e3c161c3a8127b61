"""`python -m specviz train ...`: the arguments, and from names to models."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from specviz.train import draft as distil
from specviz.train.collect import collect as run_collect


@dataclass(frozen=True)
class Head:
    """One subcommand. recipe: the dataclass whose fields are its options. train: called with the target's model, the data, the
    folder for what comes out, the recipe, the ids that end a text, how many conversations are the target's own, the commands."""

    help: str
    recipe: type
    train: Callable[..., dict[str, Any]]
    data: Callable[[Path, Any], Any]  # (folder that collect wrote, the target's model) -> what `train` reads
    folders: tuple[str, ...] = ("start",)  # further options, each a folder, that `train` takes by their names


def stored(folder: Path, model: Any) -> distil.Data:
    return distil.Data(folder, model.device)


HEADS: dict[str, Head] = {
    "draft": Head("distil a small draft model cut out of the target", distil.Recipe, distil.train, stored),
}
FOLDERS = {"start": "earlier weights of the same kind to go on from"}


def arguments(heads) -> None:
    p = heads.add_parser("collect", help="let the target answer prompts and keep its hidden states: what every head trains from")
    p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
    p.add_argument("--data", type=Path, nargs="+", required=True, help="conversation files (.npz)")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--temperatures", type=float, nargs="*", default=[0.0, 0.8], help="one own answer to each prompt for each of these")
    p.add_argument("--max-new", type=int, default=160)
    p.add_argument("--limit", type=int, default=1_300_000, help="tokens in all")
    p.add_argument("--longest", type=int, default=512)
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    for name, head in HEADS.items():
        p = heads.add_parser(name, help=head.help)
        p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
        p.add_argument("--features", type=Path, required=True, help="the folder that collect wrote")
        p.add_argument("--out", type=Path, required=True)
        for folder in head.folders:
            p.add_argument(f"--{folder}", type=Path, help=FOLDERS[folder])
        p.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as many as it has")
        recipe_options(p, head.recipe)


def recipe_options(p: argparse.ArgumentParser, recipe: type) -> None:
    """An option for every field of a recipe, of the type of its default."""
    group = p.add_argument_group("recipe", "with what holds where nothing is given")
    for f in fields(recipe):
        first = f.default[0] if isinstance(f.default, tuple) else f.default
        many = {"nargs": "+"} if isinstance(f.default, tuple) else {}
        read = truth if isinstance(first, bool) else type(first)
        option, shown = f"--{f.name.replace('_', '-')}", " ".join(map(str, f.default)) if many else f.default
        group.add_argument(option, dest=f"recipe.{f.name}", default=f.default, type=read, metavar="VALUE", help=f"{shown}", **many)


def truth(word: str) -> bool:
    if word not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {word[:20]!r}")
    return word == "true"


def recipe_of(a: argparse.Namespace, recipe: type) -> Any:
    given = {f.name: getattr(a, f"recipe.{f.name}") for f in fields(recipe)}
    return recipe(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def run(a: argparse.Namespace) -> int:
    """The subcommand that was asked for."""
    if a.threads:
        torch.set_num_threads(a.threads)
    return collect(a) if a.head == "collect" else train(a, HEADS[a.head])


def raw_model(name: str, dtype: torch.dtype):
    """The library's model with stock modules (packed ones have no gradient), and the id that ends its answers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specviz import catalog, fetch, load

    folder = Path(name)
    if catalog.spec(name):
        folder = catalog.fetch(name)
    elif folder.is_file():
        folder = fetch.import_gguf(folder, fetch.cache_folder(), lambda fraction, sentence: None)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, use_safetensors=True).eval()
    model = model.to(load.pick_device("auto"))
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True).eos_token_id


def command_line() -> str:
    """What was typed, with folders reduced to their names: the record must not carry paths of a machine."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return "python -m specviz " + shlex.join(words)


def collect(a: argparse.Namespace) -> int:
    model, stop_id = raw_model(a.target, getattr(torch, a.dtype))
    own = run_collect(model, stop_id, a.data, a.out, a.temperatures, a.max_new, a.limit, a.longest, a.seed)
    (a.out / "collect.json").write_text(json.dumps({"own": own, "command": command_line()}) + "\n")
    return 0


def train(a: argparse.Namespace, head: Head) -> int:
    try:
        facts = json.loads((a.features / "collect.json").read_text())
        own, before = facts["own"], [facts["command"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"The folder {a.features.name} is not what `train collect` writes; run it first.") from None
    model, stop_id = raw_model(a.target, torch.float32)
    folders = {name: getattr(a, name) for name in head.folders}
    if folders.get("start"):
        before = json.loads((a.start / "config.json").read_text())["commands"]
    done = head.train(
        model, head.data(a.features, model), a.out, recipe_of(a, head.recipe), [stop_id], own, [*before, command_line()], **folders
    )
    print(json.dumps({key: value for key, value in done.items() if key != "curve"}))
    return 0
