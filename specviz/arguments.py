"""The arguments of the command line; each method's knobs become options by themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from specviz.drafters import METHODS, Knob, knobs
from specviz.train.command import arguments
from specviz.verify import RULES


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
    p.add_argument("--methods", default="plain,draft_model,prompt_lookup", help="names with commas, or all: those that fit the target")
    p.add_argument("--prompts", type=Path, required=True, help='one {"prompt": ...} a line')
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--library", action="store_true", help="also time the library's own generate()")
    p.add_argument("--verbose", action="store_true")

    p = command("show", "print a trace")
    p.add_argument("trace", type=Path)

    p = command("train", "train a drafter for a target")
    heads = p.add_subparsers(dest="what", required=True, metavar="WHAT")
    arguments(heads)
    return top


def decoding(p: argparse.ArgumentParser) -> None:
    p.add_argument("--target", default="smollm2-135m", help="a name in models.yaml, a folder, or a GGUF file")
    p.add_argument(
        "--draft",
        action="append",
        default=[],
        metavar="[METHOD=]NAME",
        help="a draft model (a name, a folder, a GGUF file) or a folder of trained weights, instead of what models.yaml names; "
        "with METHOD= for that method alone; may be repeated",
    )
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
    p.add_argument("--rule", default="token", help=f"acceptance rule: {', '.join(RULES)}")
    p.add_argument("--capture", type=int, default=8, choices=range(51), metavar="N", help="entries kept of each law; 0: measure only")
    p.add_argument("--trace", type=Path, help="write the trace to this file")
    settings(p)


def settings(p: argparse.ArgumentParser) -> None:
    """An option for each name of a knob, and one for each knob of each method. They stay texts: methods with a knob of one name
    may differ in what it may be, so each reads it for itself."""
    group = p.add_argument_group("settings of the methods", "--NAME for every chosen method that has it, --METHOD.NAME for one alone")
    taken = {option for action in p._actions for option in action.option_strings}
    named: dict[str, dict[str, Knob]] = {}
    for method in METHODS.values():
        for knob in knobs(method):
            named.setdefault(knob.name, {})[method.name] = knob
            group.add_argument(f"--{method.name}.{knob.name}", dest=f"knob.{method.name}.{knob.name}", default=None, help=argparse.SUPPRESS)
    for name, of_methods in named.items():
        option = f"--{name.replace('_', '-')}"
        if option not in taken:
            group.add_argument(option, dest=f"knob.{name}", default=None, metavar="VALUE", help=told(of_methods).replace("%", "%%"))


def told(of_methods: Mapping[str, Knob]) -> str:
    """What a knob does in each method, those with the same words together."""
    sentences: dict[str, list[str]] = {}
    for method, knob in of_methods.items():
        default = str(knob.default).lower() if knob.kind == "bool" else knob.default
        sentences.setdefault(f"{knob.help} ({knob.range}; default {default})", []).append(method)
    return " | ".join(f"{', '.join(methods)}: {sentence}" for sentence, methods in sentences.items())
