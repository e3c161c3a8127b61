"""What speculative decoding should bring: numbers in, numbers out.

alpha: probability that a drafted token passes its test, taken as the same at every position.  gamma: draft length.
c: seconds of one drafter forward / seconds of one target forward of one row.
v(n): seconds of a target forward of n rows / of one row; v(1) = 1, and 1 for every n in the paper's ideal.
overhead: seconds a round spends on anything else, in units of one target forward of one row.

"Leviathan" is Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

Cost = Callable[[float], float]


def flat(rows: float) -> float:
    """v(n) of hardware on which a block costs what one token costs."""
    return 1.0


def cost_of_rows(measured: Mapping[int, float]) -> Cost:
    """v(n) from a few measured points {rows: ratio}: straight lines between them, the nearest value outside."""
    points = sorted({1: 1.0, **measured}.items())

    def v(rows: float) -> float:
        for (n0, v0), (n1, v1) in itertools.pairwise(points):
            if n0 <= rows <= n1:
                return v0 + (v1 - v0) * (rows - n0) / (n1 - n0)
        return points[0][1] if rows < points[0][0] else points[-1][1]

    return v


def expected_tokens(alpha: float, gamma: int) -> float:
    """Mean tokens a round, (1 - alpha^(gamma+1)) / (1 - alpha), gamma + 1 at alpha = 1: Leviathan, equation 1.

    Summed as 1 + alpha + ... + alpha^gamma, which is the same and has no 0/0. Raises ValueError outside 0 <= alpha <= 1, gamma >= 0.
    """
    _check(alpha, gamma)
    return math.fsum(alpha**i for i in range(gamma + 1))


def expected_from_positions(conditional: Sequence[float]) -> float:
    """Mean tokens a round when position i passes with its own probability, given that all before it did.

    conditional: one probability a position. All equal gives `expected_tokens`.
    """
    total = running = 1.0
    for rate in conditional:
        _check(rate, 0)
        running *= rate
        total += running
    return total


def expected_of_tree(parents: Sequence[int], chances: Sequence[float]) -> float:
    """Mean tokens a round of a draft tree: 1 + the sum over its nodes of the probability that the path down to it is accepted.

    parents: -1 for children of the root, else a node before it. chances: of each node, given that its parent was accepted;
    those of siblings sum to at most 1. A chain gives `expected_from_positions`. (OPT-Tree, Wang et al. 2024, maximises this sum.)
    """
    reached: list[float] = []
    for parent, chance in zip(parents, chances, strict=True):
        _check(chance, 0)
        reached.append(chance * (reached[parent] if parent >= 0 else 1.0))
    return 1 + math.fsum(reached)


def method_speedup(tau: float, rows: float, passes: float, c: float, v: Cost = flat, overhead: float = 0.0) -> float:
    """Tokens a second in units of plain decoding's, of any method: tau / (passes c + v(rows) + overhead).

    tau: mean tokens a round. rows: rows of a target pass, the root's and one for each drafted or probing node.
    passes: sequential drafter forwards a round; c: their cost; v must take a fraction of rows, as a mean of rounds is one.
    """
    return tau / (passes * c + v(rows) + overhead)


def round_cost(gamma: float, c: float, v: Cost = flat, overhead: float = 0.0) -> float:
    """Seconds of a round in units of one target forward of one row: gamma c + v(gamma + 1) + overhead. For gamma = 0 it is plain's."""
    return gamma * c + v(int(gamma) + 1) + overhead


def speedup(alpha: float, gamma: int, c: float, v: Cost = flat, overhead: float = 0.0) -> float:
    """Tokens a second in units of plain decoding's: E / (gamma c + v(gamma + 1) + overhead).

    With v = 1 and no overhead this is the improvement factor of Leviathan, theorem 3.8.
    """
    return expected_tokens(alpha, gamma) / round_cost(gamma, c, v, overhead)


def speedup_curve(alpha: float, c: float, v: Cost = flat, overhead: float = 0.0, most: int = 16) -> list[float]:
    """Speed-up for gamma = 0 .. most. Entry 0 is plain decoding, 1 by definition."""
    return [1.0] + [speedup(alpha, gamma, c, v, overhead) for gamma in range(1, most + 1)]


def best_gamma(alpha: float, c: float, v: Cost = flat, overhead: float = 0.0, most: int = 16) -> tuple[int, float]:
    """(gamma, its speed-up); the smallest of equals. (0, 1.0) says that not drafting is fastest.

    In the paper's ideal some gamma wins exactly when alpha > c: Leviathan, corollary 3.9.
    """
    curve = speedup_curve(alpha, c, v, overhead, most)
    best = max(range(len(curve)), key=lambda gamma: (curve[gamma], -gamma))
    return best, curve[best]


def break_even_alpha(gamma: int, c: float, v: Cost = flat, overhead: float = 0.0) -> float | None:
    """The alpha at which the speed-up is 1, by bisection. None: not even alpha = 1 pays. 0.0: every alpha does.

    Expected tokens grow with alpha from 1 to gamma + 1, so there is at most one such point.
    """
    cost = round_cost(gamma, c, v, overhead)
    if cost > gamma + 1:
        return None
    low, high = 0.0, 1.0
    if expected_tokens(low, gamma) >= cost:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, gamma) < cost else (low, middle)
    return high


def alpha_from_tokens(tokens: float, depths: Sequence[int]) -> float | None:
    """The constant alpha that would give this mean of tokens over rounds of these draft lengths (0: nothing was drafted).

    Inverse of the mean of `expected_tokens`. None where no alpha does: fewer than 1, or more than all drafts accepted.
    """
    if not depths or not 1 <= tokens <= 1 + sum(depths) / len(depths):
        return None
    counts = Counter(depths)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(count * expected_tokens(middle, depth) for depth, count in counts.items()) / len(depths)
        low, high = (middle, high) if mean < tokens else (low, middle)
    return (low + high) / 2


def _check(alpha: float, gamma: int) -> None:
    if not 0 <= alpha <= 1 or gamma < 0:
        raise ValueError(f"needs 0 <= alpha <= 1 and gamma >= 0, got alpha {alpha} and gamma {gamma}")
