"""bench(): is it faster here, and why. Methods interleaved on the same prompts, without capture, one JSON object at the end.

Every method runs in the same loop on the same kernels and is paired with plain decoding of the same prompt in the same
repeat. Prefill is left out on all sides; the first prompt is run once before anything counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from specviz.compare import margin, same_text
from specviz.decode import Clock, Limits, decode
from specviz.drafters import Drafter, Plain
from specviz.sampling import Sampling
from specviz.stats import summary
from specviz.trace import Trace

ROWS = (1, 2, 5, 9, 17, 33)
Make = Callable[[], Drafter]
Progress = Callable[[str], None]


def run(target, drafter: Drafter, prompt: str, sampling: Sampling, limits: Limits, **how: Any) -> Trace:
    header, *iterations = decode(target, drafter, prompt, sampling, limits, **how)
    return Trace(header, iterations)


@torch.inference_mode()
def row_cost(target, context: int = 200, repeats: int = 15) -> dict[int, float]:
    """v(n): seconds of a target pass of n rows by those of one row, medians over interleaved repeats, behind `context` tokens."""
    session = target.session(context + max(ROWS))
    session.prefill([5] * (context + 1))
    seconds: dict[int, list[float]] = {n: [] for n in ROWS}
    clock = Clock(target.device)
    for _ in range(repeats + 3):
        for n in ROWS:
            clock.lap()
            session.forward([5] * n, tuple(range(-1, n - 1)))
            seconds[n].append(clock.lap())
            session.rewind(context)
    medians = {n: statistics.median(values[3:]) for n, values in seconds.items()}
    return {n: value / medians[1] for n, value in medians.items()}


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
) -> dict[str, Any]:
    """methods: name -> maker of a fresh drafter; plain is added where it is missing. See the README for the keys of the result."""
    methods = {"plain": Plain, **methods}
    how = {"rule": rule, "raw": raw}
    progress("warm-up")
    for make in methods.values():
        run(target, make(), prompts[0], sampling, Limits(min(16, limits.max_new)), capture=0, **how)
    v = row_cost(target)
    outside = libraries(target, methods, limits, sampling, raw) if library else {}
    traces: dict[str, list[list[Trace]]] = {name: [] for name in methods}  # method -> prompt -> repeat
    rates: dict[str, list[list[float]]] = {name: [] for name in outside}
    for number, prompt in enumerate(prompts):
        progress(f"prompt {number + 1} of {len(prompts)}")
        for name in methods:
            traces[name].append([])
        for name in outside:
            rates[name].append([])
        for repeat in range(repeats):
            # the order turns, so that no method always runs on a cache or a clock speed that another one left
            runners = [(traces, name) for name in methods] + [(rates, name) for name in outside]
            turn = (number + repeat) % len(runners)
            for kept, name in runners[turn:] + runners[:turn]:
                if kept is traces:
                    kept[name][-1].append(run(target, methods[name](), prompt, sampling, limits, capture=0, **how))
                else:
                    kept[name][-1].append(outside[name](prompt))
    plain = traces["plain"]
    unit = statistics.mean(s.seconds["target"] / s.iterations for s in (summary(t) for runs in plain for t in runs))
    report = {
        "target": target.name,
        "device": target.device,
        "dtype": target.dtype,
        "kernels": target.kernels,
        "threads": torch.get_num_threads(),
        "prompts": len(prompts),
        "max_new": limits.max_new,
        "repeats": repeats,
        "temperature": sampling.temperature,
        "v": {str(n): round(cost, 3) for n, cost in v.items()},
        "target_pass_ms": round(1000 * unit, 3),
        "methods": {},
        "library": {},
    }
    for name, make in methods.items():
        progress(f"summing up {name}")
        report["methods"][name] = of_method(traces[name], plain, unit) | {
            "record_cost": record_cost(target, make, prompts, sampling, limits, how),
            "differences": differences(target, make, traces[name], plain, prompts, sampling, limits, how),
        }
    for name, runs in rates.items():
        values = [statistics.median(of_prompt) for of_prompt in runs]
        report["library"][name] = spread(values) | {
            "plain_speedup_over_it": quotient(plain, runs),
        }
    return report


def of_method(runs: Sequence[Sequence[Trace]], plain: Sequence[Sequence[Trace]], unit: float) -> dict[str, Any]:
    everything = [summary(trace) for of_prompt in runs for trace in of_prompt]
    tokens, seconds = sum(s.new_tokens for s in everything), sum(s.seconds["total"] for s in everything)
    base = [summary(trace) for of_prompt in plain for trace in of_prompt]
    base_rate = sum(s.new_tokens for s in base) / sum(s.seconds["total"] for s in base)
    paired = [
        statistics.median(summary(a).tokens_per_s / summary(b).tokens_per_s for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(runs, plain, strict=True)
    ]
    iterations, accepted = sum(s.iterations for s in everything), sum(s.accepted for s in everything)
    examined, drafted, passes = (sum(getattr(s, key) for s in everything) for key in ("examined", "drafted", "passes"))
    parts = ("prefill", "draft", "target", "verify", "commit")
    return spread([statistics.median(summary(t).tokens_per_s for t in of_prompt) for of_prompt in runs]) | {
        "tokens_per_s_overall": round(tokens / seconds, 3),
        "speedup": round(tokens / seconds / base_rate, 4),  # total tokens by total time, on both sides
        "speedup_paired": [round(x, 4) for x in quartiles(paired)],
        "tau": round(tokens / iterations, 4),
        "alpha": round(accepted / examined, 4) if examined else None,
        "drafted": drafted,
        "examined": examined,
        "accepted": accepted,
        "iterations": iterations,
        "new_tokens": tokens,
        "c": round(sum(s.seconds["draft"] for s in everything) / passes / unit, 4) if passes else None,
        "seconds_per_iteration_ms": {part: round(1000 * sum(s.seconds[part] for s in everything) / iterations, 3) for part in parts},
        "equal_to_plain": f"{sum(mine[0].ids == theirs[0].ids for mine, theirs in zip(runs, plain, strict=True))}/{len(runs)}",
    }


def record_cost(target, make: Make, prompts, sampling, limits, how, most: int = 5) -> float:
    """Share of decode time that capture takes, from runs with it."""
    traced = [summary(run(target, make(), prompt, sampling, limits, capture=8, **how)) for prompt in prompts[:most]]
    return round(sum(s.seconds["record"] for s in traced) / sum(s.seconds["total"] for s in traced), 4)


def differences(target, make: Make, runs, plain, prompts, sampling, limits, how) -> list[dict[str, Any]]:
    """Where a text differs from plain's, and how near a tie that was. Empty above temperature 0, where texts differ by chance."""
    found = []
    for number, (mine, theirs) in enumerate(zip(runs, plain, strict=True)):
        if sampling.temperature == 0 and mine[0].ids != theirs[0].ids:
            a, b = (run(target, d, prompts[number], sampling, limits, capture=8, **how) for d in (make(), Plain()))
            at = same_text(a, b)
            if at is None:
                found.append({"prompt": number, "index": None, "near_tie": None})
                continue
            m = margin(a, b, at)
            gaps = [None if g is None else round(g.logits, 6) for g in (m.a, m.b)]
            found.append({"prompt": number, "index": at, "logit_gaps": gaps, "limit": m.limit, "near_tie": m.near_tie})
    return found


def quartiles(values: Sequence[float]) -> list[float]:
    return [*statistics.quantiles(values, n=4, method="inclusive")] if len(values) > 1 else [values[0]] * 3


def spread(rates: Sequence[float]) -> dict[str, Any]:
    low, middle, high = quartiles(rates)
    return {"tokens_per_s": round(middle, 3), "tokens_per_s_quartiles": [round(low, 3), round(high, 3)]}


def quotient(plain: Sequence[Sequence[Trace]], rates: Sequence[Sequence[float]]) -> float | None:
    # a text of one token has no rate in the library's way of telling time
    pairs = [summary(a).tokens_per_s / b for mine, theirs in zip(plain, rates, strict=True) for a, b in zip(mine, theirs, strict=True) if b]
    return round(statistics.median(pairs), 4) if pairs else None


class Watch(BaseStreamer):
    """When the library's generate() hands over its first tokens, and how many come after them."""

    def __init__(self):
        self.first, self.later, self.calls = 0.0, 0, 0

    def put(self, value: torch.Tensor) -> None:
        self.calls += 1
        if self.calls == 2:  # the first call is the prompt
            self.first = time.perf_counter()
        elif self.calls > 2:
            self.later += value.numel()

    def end(self) -> None:
        self.last = time.perf_counter()


def libraries(target, methods: Mapping[str, Make], limits: Limits, sampling: Sampling, raw: bool) -> dict[str, Callable[[str], float]]:
    """The library's own decoding on the same model object and kernels: prompt -> tokens a second after the first tokens came."""
    # every field is given: what is left out, the library takes from the model's own generation config
    settings = {
        "max_new_tokens": limits.max_new,
        "eos_token_id": list(target.stop_ids) or None,
        "pad_token_id": 0,
        "repetition_penalty": float(sampling.repetition_penalty),
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature:
        settings |= {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p or None}

    def generate(prompt: str, assistant_model=None, **more: Any) -> float:
        ids = torch.tensor([target.encode(prompt, raw)], device=target.device)
        watch, config = Watch(), GenerationConfig(**settings, **more)
        extra = {"assistant_model": assistant_model} if assistant_model is not None else {}
        target.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, streamer=watch, **extra)
        return watch.later / (watch.last - watch.first) if watch.later else 0.0

    found = {"generate": generate, "prompt_lookup": lambda prompt: generate(prompt, prompt_lookup_num_tokens=10)}
    drafter = methods["draft_model"]() if "draft_model" in methods else None
    if drafter is not None and drafter.d2t is None:  # the library cannot map a trimmed vocabulary
        found["assisted"] = lambda prompt: generate(prompt, assistant_model=drafter.model.model)
    return found
