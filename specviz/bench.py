"""bench(): is it faster here, and why. Every method on a file of prompts, one JSON object at the end."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specviz import library as outside
from specviz.compare import margin, same_text
from specviz.decode import Limits, RunError, checked_prompt
from specviz.measure import Make, Measurement, spread
from specviz.sampling import Sampling
from specviz.stats import summary

RECORDED = 2  # prompts that are decoded once more with capture, to tell what that costs
Progress = Callable[[str], None]


def bench(
    target,
    methods: Mapping[str, Make],
    prompts: Sequence[str],
    sampling: Sampling,
    limits: Limits,
    repeats: int,
    rule: str = "token",
    raw: bool = False,
    library: bool = False,
    progress: Progress = lambda sentence: None,
    trained: Callable[[str], dict[str, Any] | None] = lambda method: None,
) -> dict[str, Any]:
    """The whole report, plain always in it. trained: method -> how its weights came about. See the README for the keys."""
    for number, prompt in enumerate(prompts, 1):  # minutes of measuring would be lost at the first one that cannot be run
        try:
            checked_prompt(target, prompt, raw, None)
        except RunError as error:
            raise RunError(f"Prompt {number} of {len(prompts)}: {error}") from None
    done = Measurement(target, methods, [(prompt, raw) for prompt in prompts], sampling, limits, repeats, rule)
    found = outside.libraries(target, done.methods, limits, sampling, raw) if library else {}
    rates: dict[str, dict[int, list[float]]] = {name: {} for name in found}
    others = {
        f"library's {name}": lambda number, name=name: rates[name].setdefault(number, []).append(found[name](prompts[number]))
        for name in found
    }
    before = -1
    for step in done.steps(others):
        if step.kind != "run":
            progress(f"warm-up {step.method}" if step.kind == "warm" else "the cost of a row")
        elif step.prompt != before:
            before = step.prompt
            progress(f"prompt {step.prompt + 1} of {len(prompts)}")
        step.work()
    report: dict[str, Any] = done.about() | {"methods": {}, "library": {}}
    for name in done.methods:
        progress(f"summing up {name}")
        report["methods"][name] = done.row(name) | {
            "trained": trained(name),
            "record_cost": record_cost(done, name),
            "differences": differences(done, name),
        }
    for name, of_prompts in rates.items():
        values = [statistics.median(of_prompt) for of_prompt in of_prompts.values()]
        report["library"][name] = spread(values) | {"plain_speedup_over_it": quotient(done, of_prompts)}
    return report


def record_cost(done: Measurement, name: str) -> float:
    """Share of decode time that capture takes, from runs with it."""
    traced = [summary(done.decode(name, number, capture=8)) for number in range(min(RECORDED, len(done.prompts)))]
    return round(sum(s.seconds["record"] for s in traced) / sum(s.seconds["total"] for s in traced), 4)


def differences(done: Measurement, name: str) -> list[dict[str, Any]]:
    """Where a text differs from plain's, and how near a tie that was. Empty above temperature 0, where texts differ by chance."""
    found = []
    for number, of_prompt in done.pairs(name).items():
        (mine, _), (theirs, _) = of_prompt[0]
        if done.sampling.temperature == 0 and mine.ids != theirs.ids:
            a, b = (done.decode(one, number, capture=8) for one in (name, "plain"))
            at = same_text(a, b)
            if at is None:
                found.append({"prompt": number, "index": None, "near_tie": None})
                continue
            m = margin(a, b, at)
            gaps = [None if g is None else round(g.logits, 6) for g in (m.a, m.b)]
            found.append({"prompt": number, "index": at, "logit_gaps": gaps, "limit": m.limit, "near_tie": m.near_tie})
    return found


def quotient(done: Measurement, rates: Mapping[int, Sequence[float]]) -> float | None:
    # a text of one token has no rate in the library's way of telling time
    pairs = [
        done.runs["plain"][number, repeat][1].tokens_per_s / rate
        for number, of_prompt in rates.items()
        for repeat, rate in enumerate(of_prompt)
        if rate
    ]
    return round(statistics.median(pairs), 4) if pairs else None
