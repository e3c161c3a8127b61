"""`python -m specviz train ...`: the arguments, and from names to models."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import torch

from specviz.train import draft as distil
from specviz.train.collect import collect as run_collect


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

    p = heads.add_parser("draft", help="distil a small draft model cut out of the target")
    p.add_argument("--target", default="smollm2-135m")
    p.add_argument("--features", type=Path, required=True, help="the folder that collect wrote")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--start", type=Path, help="an earlier draft to go on from")
    p.add_argument("--threads", type=int, default=0)
    for f in fields(distil.Recipe):
        many = {"nargs": "+", "type": int} if f.name == "layers" else {"type": type(f.default)}
        p.add_argument(f"--{f.name.replace('_', '-')}", default=f.default, **many)


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
    if a.threads:
        torch.set_num_threads(a.threads)
    model, stop_id = raw_model(a.target, getattr(torch, a.dtype))
    own = run_collect(model, stop_id, a.data, a.out, a.temperatures, a.max_new, a.limit, a.longest, a.seed)
    (a.out / "collect.json").write_text(json.dumps({"own": own, "command": command_line()}) + "\n")
    return 0


def draft(a: argparse.Namespace) -> int:
    if a.threads:
        torch.set_num_threads(a.threads)
    model, stop_id = raw_model(a.target, torch.float32)
    values = {f.name: getattr(a, f.name) for f in fields(distil.Recipe)}
    recipe = distil.Recipe(**{**values, "layers": tuple(values["layers"])})
    facts = json.loads((a.features / "collect.json").read_text())
    before = json.loads((a.start / "config.json").read_text())["commands"] if a.start else [facts["command"]]
    commands = [*before, command_line()]
    done = distil.train(model, distil.Data(a.features, model.device), a.out, recipe, [stop_id], facts["own"], commands, a.start)
    print(json.dumps({key: value for key, value in done.items() if key != "curve"}))
    return 0
