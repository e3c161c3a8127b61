"""Command line: fetch, run, race, bench, train, show. With --json each ends with one line of JSON (its keys are in the README)."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specviz.arguments import parser
from specviz.choose import chosen, knob_values, located
from specviz.compare import same_text
from specviz.stats import summary
from specviz.trace import MAX_BYTES, Header, Iteration, Trace, dumps, loads, split
from specviz.views import text


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = parser(COMMANDS).parse_args(words, Namespace(words=words))
    try:
        code = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough; Python would complain again when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"specviz: {Path(error.filename or '').name or 'a file'}: {error.strerror or error}.", file=sys.stderr)
        return 2
    except ValueError as error:  # every refusal of ours is one sentence
        print(f"specviz: {error}", file=sys.stderr)
        return 2


def fetch(a) -> int:
    from specviz import catalog

    catalog.fetch(a.target, progress_bar)
    answer(a, {"target": a.target, "ready": True}, f"{a.target} is ready.")
    return 0


def run(a) -> int:
    (method, draft), *others = chosen(a, a.method).items() or [("", "")]
    if others or not method:
        raise ValueError("run takes one method; use race for several.")
    header, *iterations = shown(a, lane(a, load_target(a), method, draft))
    trace = Trace(header, iterations)
    save(a, {method: trace})
    color = sys.stdout.isatty()
    answer(a, facts(trace), "\n".join(["", text.story(trace, color), "", *text.summary_lines(summary(trace), color)]))
    return 0


def race(a) -> int:
    from specviz.race import MAX_LANES
    from specviz.race import race as run_race

    methods = chosen(a, a.methods)
    methods = methods if "plain" in methods else {"plain": "auto", **methods}
    if len(methods) > MAX_LANES:
        raise ValueError(f"A race has up to {MAX_LANES} lanes, plain among them, not {len(methods)}; bench takes any number of methods.")
    target = load_target(a)
    records: dict[str, list[Header | Iteration]] = {name: [] for name in methods}
    for name, record in run_race({name: lane(a, target, name, draft) for name, draft in methods.items()}):
        records[name].append(record)
    traces = {name: Trace(first, rest) for name, (first, *rest) in records.items()}
    save(a, traces)
    base = facts(traces["plain"])["tokens_per_s"]
    lanes = {name: facts(trace) for name, trace in traces.items()}
    words = []
    for name, one in lanes.items():
        one["speedup"] = one["tokens_per_s"] / base if base and one["tokens_per_s"] else None
        one["differs_at"] = same_text(traces[name], traces["plain"])
        same = "same text" if one["differs_at"] is None else f"differs at token {one['differs_at'] + 1}"
        rate = f"{name}: {one['tokens_per_s']:.1f} tokens/s, {one['speedup']:.2f}x plain, tau {one['tau']:.2f}"
        rate += "" if one["lossless"] or name == "plain" else ", NOT lossless"
        # texts drawn at random differ by chance
        words.append(rate + (f", {same}" if a.temperature == 0 and name != "plain" else ""))
    answer(a, {"lanes": lanes}, "\n".join(["", text.story(traces["plain"], sys.stdout.isatty()), "", *words]))
    return 0


def bench(a) -> int:
    from specviz.bench import bench as measure
    from specviz.catalog import weights_folder
    from specviz.decode import Limits
    from specviz.weights import trained

    if a.repeats < 1:
        raise ValueError("--repeats must be at least 1.")
    methods = chosen(a, a.methods)
    prompts = read_prompts(a.prompts)
    target = load_target(a)
    makers = {name: (lambda name=name: drafter_of(a, target, name, methods[name])) for name in methods}
    for make in makers.values():  # what cannot be loaded is said before minutes of measuring
        make()

    def how_trained(name: str) -> dict[str, Any] | None:
        folder = weights_folder(target, name, methods[name]) if name in methods else None
        return trained(folder) if folder else None

    say = (lambda sentence: print(sentence, file=sys.stderr)) if a.verbose else (lambda sentence: None)
    report = measure(
        target, makers, prompts, sampling_of(a), Limits(a.max_new, tuple(a.stop)), a.repeats, a.rule, a.raw, a.library, say, how_trained
    )
    lines = [
        f"{name}: {m['tokens_per_s_overall']:.1f} tokens/s, {m['speedup']:.2f}x plain, "
        f"tau {m['tau']:.2f}, equal to plain {m['equal_to_plain']}"
        + ("" if m.get("lossless", True) or name == "plain" else ", NOT lossless")
        for name, m in report["methods"].items()
    ]
    lines += [
        f"library's {name}: {m['tokens_per_s']:.1f} tokens/s (median); plain is {m['plain_speedup_over_it']}x of it"
        for name, m in report["library"].items()
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
    from specviz.train.command import run as run_training

    return run_training(a)


# --- what the commands share ---


def load_target(a):
    from specviz.catalog import load_target as load
    from specviz.decode import Limits

    if a.trace is not None and not a.trace.parent.is_dir():
        raise ValueError(f"There is no folder for the trace {a.trace.name}; make it first.")
    sampling_of(a), Limits(a.max_new, tuple(a.stop))  # what they refuse is said before anything is loaded
    return load(located(a.target), a.device, a.dtype, progress_bar, allow_paths=True)


def lane(a, target, method: str, draft: str):
    from specviz.decode import Limits, decode

    limits = Limits(a.max_new, tuple(a.stop))
    return decode(target, drafter_of(a, target, method, draft), a.prompt, sampling_of(a), limits, rule=a.rule, capture=a.capture, raw=a.raw)


def drafter_of(a, target, method: str, draft: str):
    from specviz.catalog import load_drafter

    return load_drafter(target, method, knob_values(a, method), draft, progress_bar, allow_paths=True)


def sampling_of(a):
    import secrets

    from specviz.sampling import Sampling

    a.seed = secrets.randbelow(2**31) if a.seed is None else a.seed  # one for all lanes of a race
    return Sampling(a.temperature, a.top_k, a.top_p, a.min_p, a.repetition_penalty, a.seed)


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
        print(f"trace: {path}", file=sys.stderr)


def answer(a, result: dict[str, Any], words: str) -> None:
    if a.json:
        print(json.dumps(result, ensure_ascii=False))
    elif words:
        print(words)


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


COMMANDS = {"fetch": fetch, "run": run, "race": race, "bench": bench, "show": show, "train": train}

if __name__ == "__main__":
    sys.exit(main())
