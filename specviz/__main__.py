"""Command line: fetch, run, race, bench, train, show. With --json each ends with one line of JSON (its keys are in the README)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specviz.stats import summary
from specviz.trace import MAX_BYTES, Header, Iteration, Trace, dumps, loads, split
from specviz.views import text


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        code = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough; Python would complain again when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:  # every refusal of ours is a ValueError of one sentence
        print(f"specviz: {error}", file=sys.stderr)
        return 2


def fetch(a) -> int:
    from specviz import catalog

    catalog.fetch(a.target, progress_bar)
    answer(a, {"target": a.target, "ready": True}, f"{a.target} is ready.")
    return 0


def run(a) -> int:
    target = load_target(a)
    header, *iterations = shown(a, lane(a, target, a.method))
    trace = Trace(header, iterations)
    save(a, {a.method: trace})
    color = sys.stdout.isatty()
    answer(a, facts(trace), "\n".join(["", text.story(trace, color), "", *text.summary_lines(summary(trace), color)]))
    return 0


def race(a) -> int:
    from specviz.race import race as run_race

    names = listed(a.methods)
    names = [*(["plain"] if "plain" not in names else []), *names]
    target = load_target(a)
    records: dict[str, list[Header | Iteration]] = {name: [] for name in names}
    for name, record in run_race({name: lane(a, target, name) for name in names}):
        records[name].append(record)
    traces = {name: Trace(first, rest) for name, (first, *rest) in records.items()}
    save(a, traces)
    base = facts(traces["plain"])["tokens_per_s"]
    lanes = {name: facts(trace) for name, trace in traces.items()}
    for one in lanes.values():
        one["speedup"] = one["tokens_per_s"] / base if base and one["tokens_per_s"] else None
    words = [
        f"{name}: {one['tokens_per_s']:.1f} tokens/s, {one['speedup']:.2f}x plain, tau {one['tau']:.2f}" for name, one in lanes.items()
    ]
    answer(a, {"lanes": lanes}, "\n".join(words))
    return 0


def bench(a) -> int:
    from specviz.bench import bench as measure
    from specviz.catalog import load_drafter
    from specviz.decode import Limits

    prompts = read_prompts(a.prompts)
    target = load_target(a)
    makers = {
        name: (lambda name=name: load_drafter(target, name, knob_values(a, name), a.draft, allow_paths=True)) for name in listed(a.methods)
    }
    say = (lambda sentence: print(sentence, file=sys.stderr)) if a.verbose else (lambda sentence: None)
    report = measure(target, makers, prompts, sampling_of(a), Limits(a.max_new, tuple(a.stop)), a.repeats, a.rule, a.raw, a.library, say)
    lines = [
        f"{name}: {m['tokens_per_s_overall']:.1f} tokens/s, {m['speedup']:.2f}x plain, "
        f"tau {m['tau']:.2f}, equal to plain {m['equal_to_plain']}"
        for name, m in report["methods"].items()
    ]
    answer(a, report, "\n".join(lines))
    return 0


def show(a) -> int:
    with open(a.trace, "rb") as file:
        traces = [loads(part) for part in split(file.read(MAX_BYTES + 1))]
    words = "\n".join(text.show(trace, color=sys.stdout.isatty()) for trace in traces)
    answer(a, {"lanes": [facts(trace) for trace in traces]}, words)
    return 0


def train(a) -> int:
    from specviz.train.command import collect, draft

    return {"collect": collect, "draft": draft}[a.head](a)


# --- what the commands share ---


def load_target(a):
    from specviz.catalog import load_target as load

    return load(a.target, a.device, a.dtype, progress_bar, allow_paths=True)


def lane(a, target, method: str):
    from specviz.catalog import load_drafter
    from specviz.decode import Limits, decode

    drafter = load_drafter(target, method, knob_values(a, method), a.draft, allow_paths=True)
    return decode(target, drafter, a.prompt, sampling_of(a), Limits(a.max_new, tuple(a.stop)), rule=a.rule, capture=a.capture, raw=a.raw)


def knob_values(a, method: str) -> dict[str, Any]:
    """Those knobs of the method that were given on the command line; one that no method has is refused by argparse already."""
    from specviz.drafters import METHODS, knobs

    if method not in METHODS:
        raise ValueError(f"There is no method {method[:40]!r}; choose one of {', '.join(METHODS)}.")
    given = {knob.name: getattr(a, knob.name, None) for knob in knobs(METHODS[method])}
    return {name: value for name, value in given.items() if value is not None}


def sampling_of(a):
    import secrets

    from specviz.sampling import Sampling

    seed = secrets.randbelow(2**31) if a.seed is None else a.seed
    return Sampling(a.temperature, a.top_k, a.top_p, a.min_p, a.repetition_penalty, seed)


def shown(a, records):
    """Passes the records on; prints them as they come, unless only JSON is wanted."""
    if a.json:
        return list(records)
    kept: list[Header | Iteration] = []

    def keep():
        for record in records:
            kept.append(record)
            yield record

    for line in text.stream_lines(keep(), color=sys.stdout.isatty()):
        print(line, flush=True)
    return kept


def facts(trace: Trace) -> dict[str, Any]:
    s = summary(trace)
    keys = ("new_tokens", "iterations", "drafted", "examined", "accepted", "tau", "alpha", "seconds", "tokens_per_s", "stop")
    whole = s.as_dict()
    more = {
        "lossless": trace.header.lossless,
        "knobs": trace.header.knobs,
        "seed": trace.header.sampling.get("seed"),
        "drafter": trace.header.drafter,
    }
    return {"ids": trace.ids, "text": trace.text(), "method": trace.header.method, **{key: whole[key] for key in keys}, **more}


def save(a, traces: dict[str, Trace]) -> None:
    """--trace FILE; of several lanes each goes to FILE with the method's name before the ending."""
    if a.trace is None:
        return
    for name, trace in traces.items():
        path = a.trace if len(traces) == 1 else a.trace.with_name(f"{a.trace.stem}-{name}{a.trace.suffix}")
        path.write_text(dumps(trace), "utf-8")


def answer(a, result: dict[str, Any], words: str) -> None:
    if a.json:
        print(json.dumps(result, ensure_ascii=False))
    elif words:
        print(words)


def listed(names: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def read_prompts(path: Path) -> list[str]:
    try:
        prompts = [json.loads(line)["prompt"] for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f'{path.name} must hold one JSON object with a "prompt" a line.') from None
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError(f'{path.name} must hold at least one "prompt", each a text.')
    return prompts


def progress_bar(fraction: float, sentence: str) -> None:
    if sys.stderr.isatty():
        end = "\n" if fraction >= 1 else ""
        print(f"\r\x1b[K{sentence} {100 * fraction:3.0f} %", end=end, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m specviz", description="Speculative decoding, live and measured.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function, help: str) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help)
        p.set_defaults(command=function)
        p.add_argument("--json", action="store_true", help="end with one line of JSON")
        return p

    p = command("fetch", fetch, "put a target's weights on this machine")
    p.add_argument("target", nargs="?", default="smollm2-135m")

    p = command("run", run, "decode one prompt with one method")
    decoding(p)
    p.add_argument("--method", default="plain")
    p.add_argument("--prompt", required=True)

    p = command("race", race, "decode one prompt with several methods, each on its own clock")
    decoding(p)
    p.add_argument("--methods", default="plain,draft_model")
    p.add_argument("--prompt", required=True)

    p = command("bench", bench, "compare methods with plain decoding on a file of prompts")
    decoding(p)
    p.add_argument("--methods", default="plain,draft_model,prompt_lookup")
    p.add_argument("--prompts", type=Path, required=True, help='one {"prompt": ...} a line')
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--library", action="store_true", help="also time the library's own generate()")
    p.add_argument("--verbose", action="store_true")

    p = command("show", show, "print a trace")
    p.add_argument("trace", type=Path)

    p = command("train", train, "train a drafter for a target")
    heads = p.add_subparsers(dest="head", required=True, metavar="WHAT")
    from specviz.train.command import arguments

    arguments(heads)
    return top


def decoding(p: argparse.ArgumentParser) -> None:
    from specviz.drafters import METHODS, knobs

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


if __name__ == "__main__":
    sys.exit(main())
