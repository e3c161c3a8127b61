"""What a row and a draft pass cost here, in target passes of one row: by it a drafter decides how large a tree pays.

Costs are told on a coarse scale, so that two measurements seldom differ, and a run by them is the same again.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import torch

from specviz.decode import Clock, Limits, RunError, decode
from specviz.sampling import Sampling

ROWS = (1, 5, 9, 17)  # trees that pay are of these sizes
USUAL = 0.045  # a row of SmolLM2-135M, float32, two cores: for where nothing can be measured
IN_A_ROW = 3  # passes of a size, the first not counted: a small pass is slower behind a large one than in a run of its like
ROUNDS = 12  # of a drafter
PROMPT = "The capital of France is Paris. The capital of Italy is"


@torch.inference_mode()
def rows(
    target, sizes: Sequence[int] = ROWS, context: int = 128, repeats: int = 4, halted: Callable[[], bool] = lambda: False
) -> dict[int, float]:
    """Seconds of a target pass of so many rows behind `context` tokens, medians: about two seconds' work of a small model.

    Sizes and context that the target cannot hold are left out. Empty where it was halted, which is asked once a repeat.
    """
    context = max(1, min(context, target.context - max(sizes)))
    sizes = [n for n in sizes if context + n <= target.context]
    session, clock = target.session(context + max(sizes, default=0)), Clock(target.device)
    session.prefill([0] * (context + 1))
    seconds: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(repeats + 1):  # interleaved, so that a slow moment slows all alike
        if halted():
            return {}
        for n in sizes:
            for again in range(IN_A_ROW):
                clock.lap()
                session.forward([0] * n, tuple(range(-1, n - 1)))
                if again:
                    seconds[n].append(clock.lap())
                session.rewind(context)
    return {n: statistics.median(values[IN_A_ROW - 1 :]) for n, values in seconds.items()}  # the first repeat is a warm-up


def row_cost(seconds: Mapping[int, float]) -> float:
    """The slope of v(n) by least squares through v(1) = 1, in steps of 0.005; never free, since drafting a row costs too."""
    if len(seconds) < 2:
        return USUAL
    extra = [(n - 1, value / seconds[1] - 1) for n, value in seconds.items()]
    fitted = sum(rows * cost for rows, cost in extra) / sum(rows * rows for rows, _ in extra)
    return min(max(round(fitted / 0.005) * 0.005, 0.005), 1.0)


def draft_cost(target, drafter, seconds: Mapping[int, float], halted: Callable[[], bool] = lambda: False) -> float | None:
    """Of a draft pass of `drafter`, by the first rounds of a run at temperature 0. None where it cannot be told.

    halted: asked once a round.
    """
    costs = []
    try:
        records = decode(target, drafter, PROMPT, Sampling(), Limits(4 * ROUNDS), capture=0, raw=True, halted=halted)
        for number, record in enumerate(itertools.islice(records, 1, ROUNDS + 1)):
            if number and record.passes:  # the first round is a warm-up
                costs.append(record.seconds["draft"] / record.passes)
    except RunError:
        return None
    return stepped(statistics.median(costs) / seconds[1]) if costs and seconds else None


def stepped(cost: float) -> float:
    """The nearest power of the square root of two, from 1/128 to 2."""
    return 2 ** (round(2 * math.log2(min(max(cost, 1 / 128), 2))) / 2)
