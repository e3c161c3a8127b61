"""`python -m specviz train ...`: the arguments, and from names to models. A head is one line of HEADS."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from specviz.heads import draft as draft_head
from specviz.heads import files
from specviz.heads.eagle3 import Eagle3
from specviz.train import draft as distil
from specviz.train import medusa, recurrent, scratch, specdec
from specviz.train.collect import collect as run_collect
from specviz.train.conversations import read, write
from specviz.train.data import Data
from specviz.train.prompts import long_prompts
from specviz.train.texts import conversations


@dataclass(frozen=True)
class Given:
    """What a trainer may want of a command."""

    source: Path  # the target's folder
    model: nn.Module  # the target, float32, stock modules
    stop_ids: tuple[int, ...]
    features: Path  # the folder that collect wrote
    own: int  # how many conversations at its front are the target's own answers
    out: Path
    recipe: Any
    commands: tuple[str, ...]  # that led here, this one last
    more: dict[str, Any]  # those of MORE that the head takes; None where not given

    def data(self, taps: tuple[int, ...] = ()) -> Data:
        return Data(self.features, self.model.device, taps, self.model.config.num_hidden_layers)

    @property
    def usual(self) -> tuple[Any, ...]:
        return self.out, self.recipe, self.stop_ids, self.own, self.commands


@dataclass(frozen=True)
class Head:
    """One subcommand. recipe: the dataclass whose fields are its options. more: names of further options, see MORE."""

    help: str
    recipe: type
    train: Callable[[Given], dict[str, Any]]
    more: tuple[str, ...] = ()


MORE = {
    "start": (Path, "earlier weights of the same kind to go on from"),
    "draft": (Path, "the draft model: a folder that train draft wrote, or a whole model's"),
    "head": (Path, "where the MTP module goes; with --mtp"),
    "limit_tokens": (int, "so many tokens of the conversations, from the front; else all"),
}


def features(kind: str) -> Callable[[Given], dict[str, Any]]:
    """A head that reads features."""

    def train(g: Given) -> dict[str, Any]:
        taps = Eagle3.taps(g.model.config) if kind == "eagle3" else ()
        return recurrent.train(kind, g.model, g.data(taps), *g.usual, start=g.more["start"])

    return train


def acceptance(g: Given) -> dict[str, Any]:
    draft, d2t = stock_draft(required(g, "draft"), g.model)
    return specdec.train(g.model, draft, d2t, g.data(), g.out, g.recipe, g.own, g.commands)


def from_nothing(g: Given) -> dict[str, Any]:
    head = required(g, "head") if g.recipe.mtp else None
    told = read(g.features / "conversations.npz")
    if g.more["limit_tokens"]:
        ends = np.cumsum([len(c.ids) for c in told])
        told = told[: int(np.searchsorted(ends, g.more["limit_tokens"])) + 1]
    return scratch.train(told, g.source, g.out, g.recipe, g.own, g.commands, head, str(g.model.device))


HEADS: dict[str, Head] = {
    "draft": Head(
        "distil a small draft model cut out of the target",
        distil.Recipe,
        lambda g: distil.train(g.model, g.data(), *g.usual, start=g.more["start"]),
        ("start",),
    ),
    "medusa": Head("Medusa heads on the frozen target", medusa.MedusaRecipe, lambda g: medusa.train(g.model, g.data(), *g.usual)),
    "eagle": Head("an EAGLE-1 head, which EAGLE-2 uses too", recurrent.EagleRecipe, features("eagle"), ("start",)),
    "eagle3": Head("an EAGLE-3 head", recurrent.Eagle3Recipe, features("eagle3"), ("start",)),
    "mtp": Head("an MTP module added to a finished target", recurrent.MtpRecipe, features("mtp"), ("start",)),
    "specdec": Head("the acceptance head of a draft model", specdec.SpecdecRecipe, acceptance, ("draft",)),
    "scratch": Head(
        "a small model from nothing, with MTP in its loss or without", scratch.ScratchRecipe, from_nothing, ("head", "limit_tokens")
    ),
}


def arguments(heads) -> None:
    p = heads.add_parser("prompts", help="make long prompts out of short conversations, for collect to have answered")
    p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
    p.add_argument("--data", type=Path, nargs="+", required=True, help="conversations (.npz), prompts with answers (.jsonl)")
    p.add_argument("--out", type=Path, required=True, help="a .jsonl file")
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--shortest", type=int, default=150, help="tokens of passages at least")
    p.add_argument("--longest", type=int, default=850, help="tokens of passages at most")
    p.add_argument("--seed", type=int, default=0)
    p.set_defaults(threads=0)
    p = heads.add_parser("collect", help="let the target answer prompts and keep its hidden states: what every head trains from")
    p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
    p.add_argument("--data", type=Path, nargs="+", required=True, help="conversations (.npz), prompts (.jsonl), any text (.txt)")
    p.add_argument("--told-by", default="", help="whose ids the .npz files hold, where not the target's: a name, a folder, a GGUF file")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--temperatures", type=float, nargs="*", default=[0.0, 0.8], help="one own answer to each prompt for each of these")
    p.add_argument("--max-new", type=int, default=160)
    p.add_argument("--limit", type=int, default=1_300_000, help="tokens in all")
    p.add_argument("--longest", type=int, default=512)
    p.add_argument("--prompts", type=int, default=0, help="at most so many distinct prompts are answered; 0: all")
    p.add_argument("--batch", type=int, default=64, help="prompts answered at once")
    p.add_argument("--taps", nargs="*", default=[], help="further layers to keep, by number, or eagle3: the three that it reads")
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    p.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as many as it has")
    p.add_argument("--seed", type=int, default=0)
    for name, head in HEADS.items():
        p = heads.add_parser(name, help=head.help)
        p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
        p.add_argument("--features", type=Path, required=True, help="the folder that collect wrote")
        p.add_argument("--out", type=Path, required=True)
        for option in head.more:
            kind, words = MORE[option]
            p.add_argument(f"--{option.replace('_', '-')}", type=kind, help=words)
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
    return {"collect": collect, "prompts": prompts}[a.what](a) if a.what not in HEADS else train(a, HEADS[a.what])


def prompts(a: argparse.Namespace) -> int:
    from transformers import AutoTokenizer

    if a.count < 1 or not 1 <= a.shortest <= a.longest:
        raise ValueError("--count and --shortest must be at least 1, and --longest at least as many as --shortest.")
    tokenizer = AutoTokenizer.from_pretrained(model_folder(a.target), local_files_only=True)
    told = [c for path in a.data for c in conversations(path, tokenizer, a.longest)]
    made = [json.dumps({"prompt": prompt}) for prompt in long_prompts(told, tokenizer, a.count, a.shortest, a.longest, a.seed)]
    a.out.write_text("\n".join(made) + "\n", "utf-8")
    return 0


def model_folder(name: str) -> Path:
    """Of a name in models.yaml, a folder, or a GGUF file. Raises CatalogError."""
    from specviz import catalog, fetch

    if catalog.spec(name):
        return catalog.fetch(name)
    if Path(name).is_file():
        return fetch.import_gguf(Path(name), fetch.cache_folder(), lambda fraction, sentence: None)
    if (Path(name) / "config.json").is_file():
        return Path(name)
    raise catalog.unknown(name, True)


def raw_model(folder: Path, dtype: torch.dtype) -> tuple[nn.Module, int]:
    """The library's model with stock modules (packed ones have no gradient), and the id that ends its answers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specviz import load

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, use_safetensors=True).eval()
    model = model.to(load.pick_device("auto"))
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True).eos_token_id


def stock_draft(folder: Path, model: nn.Module) -> tuple[nn.Module, torch.Tensor | None]:
    """(a draft model with stock modules, the target's ids of its rows or None). Raises ModelError for what is no draft of `model`."""
    from specviz import catalog

    if catalog.is_head(folder):
        return draft_head.read(folder, model, "the target")
    return raw_model(folder, torch.float32)[0], None


def required(g: Given, name: str) -> Path:
    if g.more[name] is None:
        raise ValueError(f"--{name} is needed: {MORE[name][1]}.")
    return g.more[name]


def command_line(words: Sequence[str]) -> str:
    """What was typed, with folders reduced to their names: the record must not carry paths of a machine."""
    return "python -m specviz " + shlex.join(Path(word).name if "/" in word else word for word in words)


def taps_of(word: str, config: Any) -> tuple[int, ...]:
    if word == "eagle3":
        return Eagle3.taps(config)
    if not word.isascii() or not word.isdigit() or int(word) > config.num_hidden_layers:
        raise ValueError(f"--taps takes eagle3 or numbers from 0 to {config.num_hidden_layers}, not {word[:20]!r}.")
    return (int(word),)


def ids_of(a: argparse.Namespace, source: Path) -> list[Path]:
    """Conversation files in the target's ids. What is none already is written as one beside what comes out."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    told_by = AutoTokenizer.from_pretrained(model_folder(a.told_by), local_files_only=True) if a.told_by else None
    files = []
    a.out.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(a.data):
        if path.suffix == ".npz" and told_by is None:
            files.append(path)
        else:
            files.append(a.out / f"told-{number}.npz")
            write(files[-1], conversations(path, tokenizer, a.longest, told_by))
    return files


def collect(a: argparse.Namespace) -> int:
    source = model_folder(a.target)
    model, stop_id = raw_model(source, getattr(torch, a.dtype))
    taps = sorted(
        {tap for word in a.taps for tap in taps_of(word, model.config)} - {model.config.num_hidden_layers}
    )  # the last is kept anyway
    own = run_collect(
        model, stop_id, ids_of(a, source), a.out, a.temperatures, a.max_new, a.limit, a.longest, a.seed, taps, a.batch, a.prompts
    )
    (a.out / "collect.json").write_text(json.dumps({"own": own, "command": command_line(a.words)}) + "\n")
    return 0


def train(a: argparse.Namespace, head: Head) -> int:
    try:
        facts = json.loads((a.features / "collect.json").read_text("utf-8"))
        own, before = int(facts["own"]), [str(facts["command"])]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"The folder {a.features.name} is not what `train collect` writes; run it first.") from None
    more = {name: getattr(a, name) for name in head.more}
    if more.get("start"):
        before = files.read(a.start, "the weights to go on from")[0].get("commands", before)
    source = model_folder(a.target)
    model, stop_id = raw_model(source, torch.float32)
    given = Given(source, model, (stop_id,), a.features, own, a.out, recipe_of(a, head.recipe), (*before, command_line(a.words)), more)
    done = head.train(given)
    print(json.dumps({key: value for key, value in done.items() if key != "curve"}))
    return 0
