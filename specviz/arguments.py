"""The arguments of the command line; each method's knobs become options by themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from specviz.drafters import METHODS, knobs
from specviz.train.command import arguments


def parser(functions: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """functions: what each command runs, by its name."""
    top = argparse.ArgumentParser(prog="python -m specviz", description="Speculative decoding, live and measured.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help)
        p.set_defaults(command=functions[name])
        p.add_argument("--json", action="store_true", help="end with one line of JSON")
        return p

    p = command("fetch", "put a target's weights on this machine")
    p.add_argument("target", nargs="?", default="smollm2-135m")

    p = command("run", "decode one prompt with one method")
    decoding(p)
    p.add_argument("--method", default="plain")
    p.add_argument("--prompt", required=True)

    p = command("race", "decode one prompt with several methods, each on its own clock")
    decoding(p)
    p.add_argument("--methods", default="plain,draft_model")
    p.add_argument("--prompt", required=True)

    p = command("bench", "compare methods with plain decoding on a file of prompts")
    decoding(p)
    p.add_argument("--methods", default="plain,draft_model,prompt_lookup")
    p.add_argument("--prompts", type=Path, required=True, help='one {"prompt": ...} a line')
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--library", action="store_true", help="also time the library's own generate()")
    p.add_argument("--verbose", action="store_true")

    p = command("show", "print a trace")
    p.add_argument("trace", type=Path)

    p = command("train", "train a drafter for a target")
    heads = p.add_subparsers(dest="head", required=True, metavar="WHAT")
    arguments(heads)
    return top


def decoding(p: argparse.ArgumentParser) -> None:
    p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
    p.add_argument("--draft", default="auto", help="the draft model; auto: what models.yaml names")
    p.add_argument("--device", default="auto")
    p.add_argument("--dtype", default="auto")
    p.add_argument("--max-new", type=int, default=64)
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--top-k", type=int, default=0)
    p.add_argument("--top-p", type=float, default=1.0)
    p.add_argument("--min-p", type=float, default=0.0)
    p.add_argument("--repetition-penalty", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=None, help="default: random, and shown")
    p.add_argument("--stop", action="append", default=[], help="a string that ends the text; may be repeated")
    p.add_argument("--raw", action="store_true", help="no chat template")
    p.add_argument("--rule", default="token", help="acceptance rule: token or block")
    p.add_argument("--capture", type=int, default=8, choices=range(51), metavar="N", help="entries kept of each law; 0: measure only")
    p.add_argument("--trace", type=Path, help="write the trace to this file")
    seen: dict[str, type] = {}
    for method in METHODS.values():
        for knob in knobs(method):
            if knob.name not in seen:
                seen[knob.name] = {"int": int, "float": float, "bool": lambda s: s == "true", "choice": str}[knob.kind]
                p.add_argument(f"--{knob.name.replace('_', '-')}", type=seen[knob.name], default=None, help=f"{method.name}: {knob.help}")
