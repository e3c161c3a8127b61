"""A trace -> numbers. What is counted, and of what, is said once here; every view, report and test takes it from here.

A round counts up to where it was kept. Tokens that a stop cut off (`discarded`) were not emitted, so the drafted tokens at
those depths are neither drafted nor examined nor accepted, and a round that Stop or an error ended before anything was
decided is no round; its seconds still are seconds.

drafted   candidates the target scored (probes are none); of a tree, all nodes, though one path at most can be accepted
examined  draft positions judged: the accepted ones, and the one where the round was rejected. On a chain under the token
          rule this is the number of tests; siblings of a tree share one position, and a path that ends at a leaf of the
          tree was not judged behind it, however deep the rest of the tree is
accepted  drafted tokens that were emitted
Rates whose denominator is 0 are None, which is shown as "n/a".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, zip_longest
from typing import Any

from specviz.trace import Header, Iteration, Trace

PARTS = ("prefill", "draft", "target", "verify", "commit", "record")


def ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def decided(it: Iteration) -> bool:
    """False for a round that was ended before the target's verdict."""
    return bool(it.emitted or it.discarded)


def kept_depth(it: Iteration) -> float:
    """The depth down to which this round counts."""
    if not decided(it):
        return 0
    return len(it.emitted) if it.discarded else math.inf


def accepted_count(it: Iteration) -> int:
    return min(len(it.path), len(it.emitted))


def examined_count(it: Iteration) -> int:
    return accepted_count(it) + (it.kind == "recovered" and decided(it) and not it.discarded)


def draft_depth(it: Iteration) -> int:
    """The longest run of candidates in this round that counts: gamma, as far as it came."""
    return max((n.depth for n in it.nodes if not n.probe and n.depth <= kept_depth(it)), default=0)


@dataclass(frozen=True)
class Summary:
    """Counts of a run so far, and the rates that follow from them. `plus` adds a round, so a live page need not start over."""

    new_tokens: int = 0
    iterations: int = 0  # target passes, prefill excluded
    drafted: int = 0
    examined: int = 0
    accepted: int = 0
    discarded: int = 0
    passes: int = 0  # drafter forwards
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*PARTS, "total"), 0.0))  # total: without prefill
    stop: str = ""

    @property
    def tau(self) -> float | None:
        """Emitted tokens a target pass."""
        return ratio(self.new_tokens, self.iterations)

    @property
    def mean_accepted(self) -> float | None:
        """Accepted tokens a target pass."""
        return ratio(self.accepted, self.iterations)

    @property
    def alpha(self) -> float | None:
        """Accepted of examined."""
        return ratio(self.accepted, self.examined)

    @property
    def accepted_of_drafted(self) -> float | None:
        return ratio(self.accepted, self.drafted)

    @property
    def wasted(self) -> int:
        """Drafted tokens that were not used; in a tree most must be."""
        return self.drafted - self.accepted

    @property
    def tokens_per_s(self) -> float | None:
        """All tokens by all decode seconds; never a mean of rates."""
        return ratio(self.new_tokens, self.seconds["total"])

    def plus(self, it: Iteration) -> Summary:
        seconds = dict(self.seconds)
        for part, value in it.seconds.items():
            seconds[part] = seconds.get(part, 0.0) + value
        seconds["total"] += it.time
        return replace(
            self,
            new_tokens=self.new_tokens + len(it.emitted),
            iterations=self.iterations + decided(it),
            drafted=self.drafted + sum(not n.probe and n.depth <= kept_depth(it) for n in it.nodes),
            examined=self.examined + examined_count(it),
            accepted=self.accepted + accepted_count(it),
            discarded=self.discarded + len(it.discarded),
            passes=self.passes + it.passes,
            seconds=seconds,
            stop=it.stop,
        )

    def as_dict(self) -> dict[str, Any]:
        """Counts and rates under the names above, ready for JSON."""
        rates = ("tau", "mean_accepted", "alpha", "accepted_of_drafted", "wasted", "tokens_per_s")
        return {**vars(self), "seconds": dict(self.seconds), **{name: getattr(self, name) for name in rates}}


def rounds(records: Trace | Iterable[Header | Iteration]) -> list[Iteration]:
    if isinstance(records, Trace):
        return records.iterations
    return [record for record in records if isinstance(record, Iteration)]


def summary(records: Trace | Iterable[Header | Iteration]) -> Summary:
    """Of a trace, or of what decode() yielded so far (a header among it is passed over)."""
    total = Summary()
    for it in rounds(records):
        total = total.plus(it)
    return total


@dataclass(frozen=True)
class Position:
    """Draft position `depth` (1 = first): rounds that drafted, examined and accepted a token there, siblings together."""

    depth: int
    drafted: int
    examined: int
    accepted: int

    @property
    def unconditional(self) -> float | None:
        """Accepted of the rounds that drafted this far."""
        return ratio(self.accepted, self.drafted)

    @property
    def conditional(self) -> float | None:
        """Accepted of the rounds in which everything before was accepted and there was a candidate for what follows."""
        return ratio(self.accepted, self.examined)


def by_position(records: Trace | Iterable[Header | Iteration]) -> list[Position]:
    its = rounds(records)
    columns = [_reached(count(it) for it in its) for count in (draft_depth, examined_count, accepted_count)]
    return [Position(depth, *counts) for depth, counts in enumerate(zip_longest(*columns, fillvalue=0), 1)]


def _reached(lengths: Iterable[int]) -> list[int]:
    """Entry n - 1: how many of the lengths are at least n."""
    counts = Counter(lengths)
    return list(accumulate(counts[n] for n in range(max(counts, default=0), 0, -1)))[::-1]


def accept_lengths(records: Trace | Iterable[Header | Iteration]) -> list[int]:
    """Entry n: rounds that accepted n drafted tokens. Sums to the number of rounds."""
    its = [it for it in rounds(records) if decided(it)]
    counts = Counter(accepted_count(it) for it in its)
    return [counts[n] for n in range(max((draft_depth(it) for it in its), default=-1) + 1)]


def verdicts(it: Iteration) -> list[str]:
    """For each node: accepted | rejected | untested | discarded | probe. Accepted and rejected positions add up to `examined`."""
    kept, path = kept_depth(it), set(it.path)
    reach = len(it.path) + 1  # block verification tosses for deeper tokens too, but does not decide by them
    lost = {t.node for t in it.tests if it.nodes[t.node].depth <= reach} - path

    def verdict(i: int) -> str:
        node = it.nodes[i]
        if node.probe:
            return "probe"
        if node.depth > kept:
            return "discarded"
        if i in path:
            return "accepted"
        return "rejected" if i in lost else "untested"

    return [verdict(i) for i in range(len(it.nodes))]


def origins(it: Iteration) -> list[tuple[int, str]]:
    """(token, accepted | recovered | bonus) for each token this round emitted."""
    names = ["accepted"] * len(it.path) + [it.kind]
    return list(zip(it.emitted, names, strict=False))


@dataclass(frozen=True)
class Speed:
    time: float  # decode seconds at the end of a round
    tokens: int  # emitted until then
    now: float  # tokens/s over the window that ends here
    so_far: float  # tokens/s since the start


def speeds(records: Trace | Iterable[Header | Iteration], window: float = 1.0) -> list[Speed]:
    """One point a round. `window`: seconds looked back over, at least one whole round."""
    its = rounds(records)
    ends = [0.0, *accumulate(it.time for it in its)]
    tokens = [0, *accumulate(len(it.emitted) for it in its)]
    points, first = [], 0
    for i in range(1, len(ends)):
        while first < i - 1 and ends[i] - ends[first + 1] >= window:
            first += 1
        now = ratio(tokens[i] - tokens[first], ends[i] - ends[first])
        points.append(Speed(ends[i], tokens[i], now or 0.0, ratio(tokens[i], ends[i]) or 0.0))
    return points


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which two lists of ids differ, one ending before the other included."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))
