"""What one more row costs in a target pass, measured on this machine: by it a drafter decides how large a tree pays."""

from __future__ import annotations

import statistics
import time

import torch

ROWS = (1, 5, 9, 17)  # trees that pay are of these sizes
USUAL = 0.045  # SmolLM2-135M, float32, two cores: for where nothing is measured, so that a run there is always the same


@torch.inference_mode()
def row_cost(target, context: int = 128, repeats: int = 7) -> float:
    """The slope of v(n) = seconds of a pass of n rows / seconds of one row, through v(1) = 1. About a second of a small model.

    Rounded, so that two measurements seldom differ. USUAL for a model whose context is too short to measure in.
    """
    context = min(context, target.context - max(ROWS))
    if context < 1:
        return USUAL
    session = target.session(context + max(ROWS))
    session.prefill([0] * (context + 1))
    seconds: dict[int, list[float]] = {n: [] for n in ROWS}
    for _ in range(repeats + 1):  # interleaved, so that a slow moment slows all alike
        for n in ROWS:
            _wait(target.device)
            began = time.perf_counter()
            session.forward([0] * n, tuple(range(-1, n - 1)))
            _wait(target.device)
            seconds[n].append(time.perf_counter() - began)
            session.rewind(context)
    return slope({n: statistics.median(values[1:]) for n, values in seconds.items()})


def slope(seconds: dict[int, float]) -> float:
    """Least squares through v(1) = 1, in steps of 0.005; never free, since drafting a row costs too."""
    extra = [(n - 1, value / seconds[1] - 1) for n, value in seconds.items()]
    fitted = sum(rows * cost for rows, cost in extra) / sum(rows * rows for rows, _ in extra)
    return min(max(round(fitted / 0.005) * 0.005, 0.005), 1.0)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device.startswith("mps"):
        torch.mps.synchronize()
