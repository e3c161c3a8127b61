"""Command line: fetch, run, race, bench, train, show. With --json each ends with one line of JSON (its keys are in the README)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specviz.arguments import parser
from specviz.compare import same_text
from specviz.stats import summary
from specviz.trace import MAX_BYTES, Header, Iteration, Trace, dumps, loads, split
from specviz.views import text


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser(COMMANDS).parse_args(argv)
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
    chosen(a, [a.method])
    target = load_target(a)
    header, *iterations = shown(a, lane(a, target, a.method))
    trace = Trace(header, iterations)
    save(a, {a.method: trace})
    color = sys.stdout.isatty()
    answer(a, facts(trace), "\n".join(["", text.story(trace, color), "", *text.summary_lines(summary(trace), color)]))
    return 0


def race(a) -> int:
    from specviz.race import race as run_race

    names = chosen(a, listed(a.methods))
    names = [*(["plain"] if "plain" not in names else []), *names]
    target = load_target(a)
    records: dict[str, list[Header | Iteration]] = {name: [] for name in names}
    for name, record in run_race({name: lane(a, target, name) for name in names}):
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
        # texts drawn at random differ by chance
        words.append(rate + (f", {same}" if a.temperature == 0 and name != "plain" else ""))
    answer(a, {"lanes": lanes}, "\n".join(["", text.story(traces["plain"], sys.stdout.isatty()), "", *words]))
    return 0


def bench(a) -> int:
    from specviz.bench import bench as measure
    from specviz.catalog import load_drafter
    from specviz.decode import Limits

    if a.repeats < 1:
        raise ValueError("--repeats must be at least 1.")
    chosen(a, listed(a.methods))
    prompts = read_prompts(a.prompts)
    target = load_target(a)
    draft = located(a.draft)
    makers = {
        name: (lambda name=name: load_drafter(target, name, knob_values(a, name), draft, allow_paths=True)) for name in listed(a.methods)
    }
    say = (lambda sentence: print(sentence, file=sys.stderr)) if a.verbose else (lambda sentence: None)
    report = measure(target, makers, prompts, sampling_of(a), Limits(a.max_new, tuple(a.stop)), a.repeats, a.rule, a.raw, a.library, say)
    lines = [
        f"{name}: {m['tokens_per_s_overall']:.1f} tokens/s, {m['speedup']:.2f}x plain, "
        f"tau {m['tau']:.2f}, equal to plain {m['equal_to_plain']}"
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
    from specviz.train.command import collect, draft

    return {"collect": collect, "draft": draft}[a.head](a)


# --- what the commands share ---


def load_target(a):
    from specviz.catalog import load_target as load

    if a.trace is not None and not a.trace.parent.is_dir():
        raise ValueError(f"There is no folder for the trace {a.trace.name}; make it first.")
    return load(located(a.target), a.device, a.dtype, progress_bar, allow_paths=True)


def located(name: str) -> str:
    """A path as the catalog takes it, without steps upwards: here it is the user's own shell that names it."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def lane(a, target, method: str):
    from specviz.catalog import load_drafter
    from specviz.decode import Limits, decode

    drafter = load_drafter(target, method, knob_values(a, method), located(a.draft), allow_paths=True)
    return decode(target, drafter, a.prompt, sampling_of(a), Limits(a.max_new, tuple(a.stop)), rule=a.rule, capture=a.capture, raw=a.raw)


def chosen(a, methods: list[str]) -> list[str]:
    """The methods, once each setting that was given has an effect on one of them."""
    from specviz.drafters import METHODS, knobs

    every = {knob.name for method in METHODS.values() for knob in knobs(method)}
    used = {name for method in methods for name in knob_values(a, method)}
    for name in sorted(every - used):
        if getattr(a, name, None) is not None:
            raise ValueError(f"--{name.replace('_', '-')} has no effect on {', '.join(methods)}; leave it out.")
    return methods


def knob_values(a, method: str) -> dict[str, Any]:
    """Those knobs of the method that were given on the command line."""
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
        print(f"trace: {path}", file=sys.stderr)


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


COMMANDS = {"fetch": fetch, "run": run, "race": race, "bench": bench, "show": show, "train": train}

if __name__ == "__main__":
    sys.exit(main())
