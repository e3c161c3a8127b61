"""Pearson's test of drawn outcomes against an exact law, and what it is able to see.

The seeds of the tests are fixed, so a test that passes goes on passing; the error bounds how likely a right method would
have failed when it was written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch

LEAST = 8.0  # expected draws of a cell; rarer outcomes are counted together


def survival(x: float, freedom: float) -> float:
    """P(chi-squared > x)."""
    half = torch.tensor([freedom / 2, x / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def survival_shifted(x: float, freedom: float, shift: float) -> float:
    """P(chi-squared with noncentrality `shift` > x): chi-squared laws of freedom + 2k, k by Poisson of mean shift / 2."""
    mean = shift / 2
    last = int(mean + 12 * math.sqrt(mean) + 30)
    k = torch.arange(last, dtype=torch.float64)
    weights = (k * math.log(mean) - mean - torch.lgamma(k + 1)).exp() if mean > 0 else (k == 0).double()
    tails = torch.special.gammaincc(freedom / 2 + k, torch.full_like(k, x / 2))
    return float((weights * tails).sum())


def solve(falls: Callable[[float], float], value: float, high: float = 1.0) -> float:
    """x >= 0 with falls(x) = value, for a function that falls to 0."""
    low = 0.0
    while falls(high) > value:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(middle) > value else (low, middle)
    return high


def cells(law: Mapping[tuple, float], runs: int) -> tuple[list[tuple], float]:
    """Outcomes that are counted by themselves, and the mass of all others."""
    own = [outcome for outcome, mass in law.items() if mass * runs >= LEAST]
    rest = 1 - sum(law[outcome] for outcome in own)
    if 0 < rest * runs < LEAST and len(own) > 1:  # too few even together: the rarest cell joins them
        rarest = min(own, key=law.__getitem__)
        own.remove(rarest)
        rest += law[rarest]
    return own, rest


def p_value(drawn: Iterable[tuple], law: Mapping[tuple, float]) -> float:
    """How likely draws of `law` are to differ from it at least as much; 0 where something impossible was drawn."""
    counts = Counter(drawn)
    runs = counts.total()
    if any(law.get(outcome, 0.0) <= 0 for outcome in counts):
        return 0.0
    own, rest = cells(law, runs)
    expected = [law[outcome] * runs for outcome in own]
    found = [counts[outcome] for outcome in own]
    if rest * runs > 1e-6:
        expected.append(rest * runs)
        found.append(runs - sum(found))
    statistic = sum((f - e) ** 2 / e for f, e in zip(found, expected, strict=True))
    return survival(statistic, len(expected) - 1) if len(expected) > 1 else 1.0


def detectable(law: Mapping[tuple, float], runs: int, error: float, power: float = 0.99) -> float:
    """A wrong law at least this far in total variation, over the counted cells, fails with probability `power`.

    The noncentrality is runs * sum((p' - p)^2 / p), at least runs * (2 TV)^2 by Cauchy-Schwarz: a bound for the law that
    hides best, so most wrong laws are seen at less.
    """
    freedom = len(cells(law, runs)[0])
    critical = solve(lambda x: survival(x, freedom), error, freedom)
    shift = solve(lambda s: 1 - survival_shifted(critical, freedom, s), 1 - power, critical)
    return math.sqrt(shift / (4 * runs))
