"""What a run's own laws say should have come out, beside what did: the check that acceptance is what theory says it is.

All of it is about the token rule, the only one that judges every token by itself, with probability min(1, p / q).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from specviz.stats import decided, kept_depth
from specviz.trace import Iteration, Trace


@dataclass(frozen=True)
class Overlap:
    """P(accept) as the laws say it, beside what happened. `low`, `high`: 95 % Wilson interval of the measured rate.

    Of a token that was drawn it is sum_x min(p, q); where several were drawn, this is the first one's. Of candidates that
    were chosen without randomness it is the mass that p gives to them together.
    """

    rows: int
    expected: float
    measured: float
    low: float
    high: float


def overlap(trace: Trace) -> Overlap | None:
    """Over the rows that carry an overlap and whose candidates were judged by the token rule. None where there are none."""
    if trace.header.rule != "token":  # no other rule accepts with this probability
        return None
    expected, hits = [], []
    for it in trace.iterations:
        rows = {row.after: row.overlap for row in it.rows if row.overlap is not None}
        judged: dict[int, bool] = {}  # by what stands before
        for test in it.tests:
            node = it.nodes[test.node]
            if node.parent in rows and node.depth <= kept_depth(it):
                first = judged.setdefault(node.parent, test.accepted)
                judged[node.parent] = first or (node.q is None and test.accepted)
        expected += [rows[parent] for parent in judged]
        hits += judged.values()
    if not hits:
        return None
    n, rate = len(hits), sum(hits) / len(hits)
    low, high = wilson(sum(hits), n)
    return Overlap(n, math.fsum(expected) / n, rate, low, high)


def chances(it: Iteration) -> list[float] | None:
    """Of each node: probability under the token rule that it is accepted once its parent is. None where that is not recorded.

    A token chosen without randomness is accepted with probability p, its siblings notwithstanding; the same token again
    never is. The only candidate that was drawn after its parent: min(1, p / q). One of several that were drawn: depends
    on what the rejected ones leave over, which is not kept.
    """
    found, seen = [], set()
    siblings = Counter(node.parent for node in it.nodes if not node.probe)
    for node in it.nodes:
        if node.probe or (node.parent, node.token) in seen:
            found.append(0.0)
        elif node.p is None:
            return None
        elif node.q is None:
            found.append(min(1.0, node.p))
        elif siblings[node.parent] > 1:
            return None
        else:
            found.append(min(1.0, node.p / node.q) if node.q > 0 else 0.0)
        seen.add((node.parent, node.token))
    return found


@dataclass(frozen=True)
class Expectation:
    """Mean tokens a round as the drafted nodes' probabilities say it, beside what came out (their difference is luck alone)."""

    rounds: int
    expected: float
    measured: float
    error: float  # standard error of measured - expected


def expectation(trace: Trace) -> Expectation | None:
    """Over all decided rounds: 1 + the probabilities that the paths down to each node are accepted (token rule).

    Nodes after an end of text do not count, since such a round emits nothing there. None for other rules and where a
    round's chances are not recorded.
    """
    if trace.header.rule != "token":
        return None
    means, tokens, ends = [], [], set(trace.header.stop_ids)
    for it in trace.iterations:
        if not decided(it):
            continue
        if (of_nodes := chances(it)) is None:
            return None
        reached: list[float] = []
        for node, chance in zip(it.nodes, of_nodes, strict=True):
            before = reached[node.parent] if node.parent >= 0 else 1.0
            reached.append(0.0 if node.token in ends else before * chance)
        means.append(1 + math.fsum(reached))
        tokens.append(len(it.emitted))
    if not means:
        return None
    n = len(means)
    luck = [a - b for a, b in zip(tokens, means, strict=True)]
    middle = math.fsum(luck) / n
    error = math.sqrt(math.fsum((x - middle) ** 2 for x in luck) / max(1, n - 1) / n)
    return Expectation(n, math.fsum(means) / n, sum(tokens) / n, error)


def wilson(hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Interval of a rate of `hits` in n > 0 trials (Wilson 1927)."""
    rate = hits / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half))  # exact at 0 and at n, whatever the rounding
