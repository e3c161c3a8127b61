"""Measurement: methods on the same prompts, each run paired with plain decoding of the same prompt in the same repeat.

Every method runs in the same loop on the same kernels, without capture. Prefill is left out on all sides; each method runs
once before anything counts. The work comes in small steps, so that a page can show rows as they grow, let others in between
two steps, and stop.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specviz import pace
from specviz.decode import Limits, decode
from specviz.drafters import Drafter, Plain, knob_values
from specviz.sampling import Sampling
from specviz.stats import Summary, by_position, decided, summary
from specviz.theory import cost_of_rows, method_speedup
from specviz.trace import Trace
from specviz.weights import extra

ROWS = (1, 2, 5, 9, 17, 33, 65)
PARTS = ("prefill", "draft", "target", "verify", "commit")
WARM_UP = 16  # tokens
Make = Callable[[], Drafter]


def run(target, drafter: Drafter, prompt: str, sampling: Sampling, limits: Limits, **how: Any) -> Trace:
    header, *iterations = decode(target, drafter, prompt, sampling, limits, **how)
    return Trace(header, iterations)


def row_cost(target, context: int = 200, repeats: int = 6, halted: Callable[[], bool] = lambda: False) -> dict[int, float]:
    """v(n): seconds of a target pass of n rows by those of one row. Empty where it was halted."""
    seconds = pace.rows(target, ROWS, context, repeats, halted)
    return {n: value / seconds[1] for n, value in seconds.items()}


@dataclass(frozen=True)
class Step:
    """A piece of work: `work()` does it, in a second or so. method and prompt: whose it is, "" and -1 where it is nobody's."""

    kind: str  # "warm" | "v" | "run"
    method: str
    prompt: int
    work: Callable[[], None]


class Measurement:
    """Methods over prompts. `steps` names the work in its order, `row` sums up what has been done of it at any time.

    methods: name -> maker of a fresh drafter; plain is added in front where it is missing. prompts: (text, raw: without a chat
    template). halted: asked once a round; the run it ends is not counted. passes: repeats of each size, to measure what rows cost.
    """

    def __init__(
        self,
        target,
        methods: Mapping[str, Make],
        prompts: Sequence[tuple[str, bool]],
        sampling: Sampling,
        limits: Limits,
        repeats: int = 1,
        rule: str = "token",
        halted: Callable[[], bool] = lambda: False,
        passes: int = 6,
    ):
        self.target, self.prompts, self.sampling, self.limits, self.repeats, self.rule = target, prompts, sampling, limits, repeats, rule
        self.methods: dict[str, Make] = {"plain": Plain, **methods}
        self.halted, self.passes = halted, passes
        self.v: dict[int, float] = {}
        self.runs: dict[str, dict[tuple[int, int], tuple[Trace, Summary]]] = {name: {} for name in self.methods}  # (prompt, repeat)
        self.facts: dict[str, dict[str, Any]] = {}

    def steps(self, others: Mapping[str, Callable[[int], None]] | None = None) -> Iterator[Step]:
        """All the work. others: more runners that take their turn on each prompt (its number), as the methods do."""
        for name in self.methods:
            yield Step("warm", name, -1, lambda name=name: self._warm(name))
        yield Step("v", "", -1, self._rows)
        for number in range(len(self.prompts)):
            for repeat in range(self.repeats):
                # the order turns, so that no method always runs on a cache or a clock speed that another one left
                runners = [*self.methods, *(others or {})]
                turn = (number + repeat) % len(runners)
                for name in runners[turn:] + runners[:turn]:
                    if name in self.methods:
                        yield Step("run", name, number, lambda name=name, key=(number, repeat): self._run(name, key))
                    else:
                        yield Step("run", name, number, lambda name=name, number=number: others[name](number))

    def decode(self, method: str, prompt: int, capture: int = 0, limits: Limits | None = None) -> Trace:
        text, raw = self.prompts[prompt]
        how = {"rule": self.rule, "raw": raw, "capture": capture, "halted": self.halted}
        return run(self.target, self.methods[method](), text, self.sampling, limits or self.limits, **how)

    def _warm(self, name: str) -> None:
        drafter = self.methods[name]()
        source = drafter.source  # a drafter may make its parts when it is first asked
        added = extra(drafter, self.target)
        self.facts[name] = {
            "paper": drafter.paper,
            "needs": drafter.needs,
            "source": source,
            "knobs": knob_values(drafter),
            "extra_parameters": added.parameters,
            "extra_bytes": added.bytes,
        }
        header = self.decode(name, 0, limits=Limits(min(WARM_UP, self.limits.max_new), self.limits.stop)).header
        self.facts[name]["lossless"] = header.lossless

    def _rows(self) -> None:
        self.v = row_cost(self.target, repeats=self.passes, halted=self.halted)

    def _run(self, name: str, key: tuple[int, int]) -> None:
        trace = self.decode(name, key[0])
        if trace.stop != "stopped" and trace.iterations:
            self.runs[name][key] = trace, summary(trace)

    def pairs(self, name: str) -> dict[int, list[tuple[tuple[Trace, Summary], tuple[Trace, Summary]]]]:
        """prompt -> the method's runs beside plain's of the same prompt and repeat, as far as both have been done."""
        found: dict[int, list[Any]] = {}
        for key in sorted(self.runs[name].keys() & self.runs["plain"].keys()):
            found.setdefault(key[0], []).append((self.runs[name][key], self.runs["plain"][key]))
        return found

    @property
    def unit(self) -> float | None:
        """Mean seconds of one of plain's target passes, which is one row."""
        done = [s for _, s in self.runs["plain"].values()]
        passes = sum(s.iterations for s in done)
        return sum(s.seconds["target"] for s in done) / passes if passes else None

    def row(self, name: str) -> dict[str, Any] | None:
        """One method against plain, in plain numbers; None while no prompt has been run by both. Keys: see the README."""
        pairs = self.pairs(name)
        both = [pair for of_prompt in pairs.values() for pair in of_prompt]
        if not both or not self.unit:
            return None
        mine, base = [s for (_, s), _ in both], [s for _, (_, s) in both]
        tokens, seconds = sum(s.new_tokens for s in mine), sum(s.seconds["total"] for s in mine)
        base_rate = sum(s.new_tokens for s in base) / sum(s.seconds["total"] for s in base)
        paired = [statistics.median(a.tokens_per_s / b.tokens_per_s for (_, a), (_, b) in of_prompt) for of_prompt in pairs.values()]
        rounds = [it for (trace, _), _ in both for it in trace.iterations if decided(it)]
        iterations, accepted, examined, drafted, passes = (
            sum(getattr(s, key) for s in mine) for key in ("iterations", "accepted", "examined", "drafted", "passes")
        )
        each = {part: sum(s.seconds[part] for s in mine) / iterations for part in PARTS}
        depths = [one for one in by_position(rounds) if one.examined]
        v = cost_of_rows(self.v)
        rows = [1 + len(it.nodes) for it in rounds]
        usual = sum(map(v, rows)) / len(rows)
        tau, speedup = tokens / iterations, tokens / seconds / base_rate
        # all drafting of a round counts as one pass, which serves drafters without any too; v is the mean of each round's own
        predicted = method_speedup(tau, sum(rows) / len(rows), 1, each["draft"] / self.unit, lambda _: usual)
        return spread([statistics.median(a.tokens_per_s for (_, a), _ in of_prompt) for of_prompt in pairs.values()]) | {
            "tokens_per_s_overall": round(tokens / seconds, 3),
            "speedup": round(speedup, 4),  # total tokens by total time, on both sides
            "speedup_paired": [round(x, 4) for x in quartiles(paired)],
            # tau by what its drafting and its rows cost; the rest, verify and commit, is the gap
            "predicted": round(predicted, 4),
            "gap": round(speedup / predicted - 1, 4),
            "tau": round(tau, 4),
            "alpha": round(accepted / examined, 4) if examined else None,
            "alpha_by_depth": [round(one.conditional, 4) for one in depths],
            "examined_by_depth": [one.examined for one in depths],
            "drafted": drafted,
            "examined": examined,
            "accepted": accepted,
            "iterations": iterations,
            "new_tokens": tokens,
            "prompts": len(pairs),
            "rows": round(sum(rows) / len(rows), 2),
            "passes": round(passes / iterations, 3),
            "c": round(each["draft"] * iterations / passes / self.unit, 4) if passes else None,
            "draft_cost": round(each["draft"] / self.unit, 4),  # all drafting of a round, in plain's target passes
            "v": round(usual, 4),
            "v_measured": round(each["target"] / self.unit, 4),
            "seconds_per_iteration_ms": {part: round(1000 * value, 3) for part, value in each.items()},
            "equal_to_plain": f"{sum(of_prompt[0][0][0].ids == of_prompt[0][1][0].ids for of_prompt in pairs.values())}/{len(pairs)}",
            **self.facts.get(name, {}),
        }

    def about(self) -> dict[str, Any]:
        """What all rows share."""
        return {
            "target": self.target.name,
            "device": self.target.device,
            "dtype": self.target.dtype,
            "kernels": self.target.kernels,
            "threads": torch.get_num_threads(),
            "prompts": len(self.prompts),
            "max_new": self.limits.max_new,
            "repeats": self.repeats,
            "temperature": self.sampling.temperature,
            "rule": self.rule,
            "v": {str(n): round(cost, 3) for n, cost in self.v.items()},
            "target_pass_ms": round(1000 * self.unit, 3) if self.unit else None,
        }


def quartiles(values: Sequence[float]) -> list[float]:
    return [*statistics.quantiles(values, n=4, method="inclusive")] if len(values) > 1 else [values[0]] * 3


def spread(rates: Sequence[float]) -> dict[str, Any]:
    low, middle, high = quartiles(rates)
    return {"tokens_per_s": round(middle, 3), "tokens_per_s_quartiles": [round(low, 3), round(high, 3)]}
