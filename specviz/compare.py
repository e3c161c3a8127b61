"""Two runs of one prompt -> numbers: same text or where not, how near a tie that was, what a round costs, why it is slower."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specviz import theory
from specviz.chance import expectation
from specviz.stats import decided, draft_depth, first_difference, ratio, summary
from specviz.trace import Trace

UNFINISHED = ("", "stopped", "error")
# Logits apart that rounding alone can swap: a few steps of the format at the size logits have (16 to 32).
NEAR_TIE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
REASONS = ("nothing_drafted", "alpha", "draft", "target", "overhead", "capture")


def same_text(a: Trace, b: Trace) -> int | None:
    """None: the same ids. Else the first index that differs. A run still going on, or ended early, is judged as far as it came."""
    x, y = a.ids, b.ids
    at = first_difference(x, y)
    if (at == len(x) and a.stop in UNFINISHED) or (at == len(y) and b.stop in UNFINISHED):
        return None
    return at


@dataclass(frozen=True)
class Gap:
    """The two tokens the target found most likely at one place, at temperature 1 and without filters, as far as they were recorded."""

    first: int
    second: int
    p_first: float
    p_second: float

    @property
    def logits(self) -> float:
        """The difference of their logits, which is the logarithm of the ratio of their probabilities."""
        return math.log(self.p_first / self.p_second) if self.p_second > 0 else math.inf


@dataclass(frozen=True)
class Margin:
    index: int
    a: Gap | None
    b: Gap | None
    limit: float  # logits; at or below it on both sides a tie was near
    near_tie: bool | None  # None: cannot be told (not recorded, drawn at random, or changed by a penalty)


def gap_at(trace: Trace, index: int) -> Gap | None:
    """Of the row that predicted output token `index`; None where the trace holds no such row with two tokens."""
    for it in trace.iterations:
        if index < len(it.emitted):
            after = it.path[index - 1] if index else -1
            for row in it.rows:
                if row.after == after and len(row.ids) > 1:
                    (p1, first), (p2, second) = sorted(zip(row.model, row.ids, strict=True), reverse=True)[:2]
                    return Gap(first, second, p1, p2)
            return None
        index -= len(it.emitted)
    return None


def margin(a: Trace, b: Trace, index: int) -> Margin:
    """How near a tie it was where two runs part. "near tie, rounding" may be said only if `near_tie` is True.

    That needs temperature 0 and no repetition penalty (the rows are the model's own), both gaps within the limit of the
    coarser dtype, and on both sides the two emitted tokens being the two best.
    """
    left, right = gap_at(a, index), gap_at(b, index)
    limit = max(NEAR_TIE.get(t.header.dtype, NEAR_TIE["float32"]) for t in (a, b))
    exact = all(not t.header.sampling.get("temperature", 0) and t.header.sampling.get("repetition_penalty", 1) == 1 for t in (a, b))
    if left is None or right is None or not exact:
        return Margin(index, left, right, limit, None)
    chosen = {t.ids[index] for t in (a, b)}
    near = all(chosen == {g.first, g.second} and g.logits <= limit for g in (left, right))
    return Margin(index, left, right, limit, near)


@dataclass(frozen=True)
class Costs:
    """What a mean round of a lane costs, in units of plain's mean target pass (one row)."""

    gamma: float  # mean depth drafted
    chain: bool  # no round drafted siblings, so that depth is the number of tokens
    c: float | None  # one drafter forward; None for a drafter that needs none
    v: float  # the target pass
    draft: float  # all drafting of a round
    overhead: float  # verify, commit and whatever else
    record: float  # capture
    plain_extra: float  # plain's own overhead and capture

    @property
    def round(self) -> float:
        return self.draft + self.v + self.overhead + self.record

    def speedup(self, tau: float) -> float:
        """Of a lane that emits tau tokens a round: predicted with theory's tau, measured with the measured one."""
        return tau * (1 + self.plain_extra) / self.round


def is_chain(lane: Trace) -> bool:
    """Whether no round drafted siblings or probes, so that its depth is its length."""
    return all(node.parent == i - 1 and not node.probe for it in lane.iterations for i, node in enumerate(it.nodes))


def costs(lane: Trace, plain: Trace | None = None) -> Costs | None:
    """None where a clock shows nothing. Without a plain lane the lane's own target pass is the unit, hence v = 1."""
    own, base = summary(lane), summary(plain or lane)
    unit = ratio(base.seconds["target"], base.iterations)
    if not own.iterations or not unit:
        return None
    each = {part: seconds / own.iterations / unit for part, seconds in own.seconds.items()}
    pass_seconds = ratio(own.seconds["draft"], own.passes)
    its = [it for it in lane.iterations if decided(it)]
    return Costs(
        gamma=sum(map(draft_depth, its)) / len(its),
        chain=is_chain(lane),
        c=None if pass_seconds is None else pass_seconds / unit,
        v=each["target"],
        draft=each["draft"],
        overhead=each["total"] - each["draft"] - each["target"] - each["record"],
        record=each["record"],
        plain_extra=(base.seconds["total"] - base.seconds["target"] - (0 if plain else base.seconds["draft"])) / base.iterations / unit,
    )


def by_length(cost: Costs, alpha: float, v: theory.Cost | None = None, most: int = 16) -> list[float]:
    """Theory's speed-up for draft lengths 0 .. most at this run's alpha and costs. For chains.

    v: measured cost of n rows; without it, a straight line through this run's mean target pass.
    """
    # a drafter without forwards (a look-up) costs the same for any length
    each, fixed = (cost.c, 0.0) if cost.c is not None else (0.0, cost.draft)
    rise = max(0.0, cost.v - 1) / cost.gamma
    v = v or (lambda rows: 1 + rise * (rows - 1))
    own = 1 + cost.plain_extra  # plain's whole round is the unit of a speed-up, not its target pass alone
    extra = (fixed + cost.overhead + cost.record) / own
    return theory.speedup_curve(alpha, each / own, lambda rows: v(rows) / own, extra, most)


def predicted_tau(lane: Trace) -> float | None:
    """Tokens a round that theory promises this lane: of a tree by its nodes' own probabilities, of a chain by its alpha and lengths.

    None where theory has none: a tree of drawn siblings, or one judged by another rule than the token rule.
    """
    own, its = summary(lane), [it for it in lane.iterations if decided(it)]
    if own.alpha is None:
        return None
    if is_chain(lane):
        return sum(theory.expected_tokens(own.alpha, draft_depth(it)) for it in its) / len(its)
    found = expectation(lane)
    return found and found.expected


def slower_reason(speedup: float, tau: float, cost: Costs) -> str | None:
    """One of REASONS, the dominant one; None when the lane is not slower than plain.

    A lane that accepted everything at no cost would emit gamma + 1 tokens a target pass. What is missing from that factor
    splits, in logarithms, into tokens not accepted, log((gamma + 1) / tau), and time, log(round), the latter shared out by
    what each part adds to one plain target pass. The largest share is the reason.
    """
    if speedup >= 1:
        return None
    if cost.gamma == 0:
        return "nothing_drafted"
    added = {"draft": cost.draft, "target": max(0.0, cost.v - 1), "overhead": cost.overhead, "capture": cost.record}
    total = sum(added.values())
    lost = math.log(max(1.0, cost.round)) / total if total > 0 else 0.0
    shares = {"alpha": math.log(max(1.0, (cost.gamma + 1) / tau)), **{name: lost * value for name, value in added.items()}}
    return max(shares, key=lambda name: shares[name])
