"""Draft trees: which nodes to hold, and when another draft pass no longer pays.

Everything is counted in target passes of one row. A pass over n drafted rows costs about 1 + row_cost n, and brings one
token plus the sum of the nodes' path probabilities (rule (c): what the target accepts of a tree is a path, and a node is
on it with its path probability; OPT-Tree, Wang et al. 2024). So a node pays while its path probability exceeds what its
row would bring elsewhere, row_cost times the tokens a unit of time, and trees stay small where rows are not free.

Choosing by confidence is lossless only for nodes that were not drawn, i.e. where the draft has no q.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specviz.tree import Draft

CERTAIN = 0.98  # no node is surer than this, so that every further one costs its parent's chance something
RANKS, DEPTHS = 4, 6  # ranks and depths from here on are counted together
USUAL = (0.4, 0.12, 0.06, 0.03)  # acceptance by rank, given the parent, until a run has seen its own
EXAMPLES = 4.0  # observations that what is believed beforehand weighs as much as
FADE = 0.98  # weight of a round's counts in the next one
NOTHING = (0.0, 0.0, 0.0)
START = (12.0, 8.0)  # tokens and time that a run is taken to begin with: eight rounds at 1.5


def best(
    scores: Sequence[float],
    parents: Sequence[int],
    size: int,
    row_cost: float,
    spent: float = 0.0,
    before: tuple[float, float] = (0.0, 0.0),
) -> list[int]:
    """Nodes to keep of a tree of candidates: ascending, so parents stand first, and every ancestor of a kept node is kept.

    scores: path probability of each node. A score above its parent's counts as its parent's. Ties go to the earlier node.
    size > 0: that many of the best ones. size 0: those that maximise tokens per time,
        (tokens + 1 + sum of the kept scores) / (time + 1 + spent + row_cost * kept),
    with `spent` what drafting cost in this round and `before` = (tokens, time) of the rounds before it: with a past the
    rate a node has to beat is the run's own, not that of a round which happens to be a poor one. May be no node at all.
    """
    bounded: list[float] = []
    for score, parent in zip(scores, parents, strict=True):
        bounded.append(min(score, bounded[parent]) if parent >= 0 else score)
    order = sorted(range(len(bounded)), key=lambda i: -bounded[i])  # stable, so a parent stands before a child of its score
    if size > 0:
        return sorted(order[:size])
    tokens, time = before[0] + 1, before[1] + 1 + spent
    kept = 0
    for node in order:  # the scores fall, so the first one that lowers the rate is the last that could raise it
        if bounded[node] * time <= row_cost * tokens:
            break
        tokens, time, kept = tokens + bounded[node], time + row_cost, kept + 1
    return sorted(order[:kept])


def static(choices: Collection[tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """(parents, (depth, rank) of each node) of a fixed tree, level by level. A choice is the ranks from the root down.

    Raises ValueError where a node has no parent or is named twice.
    """
    ordered = sorted(choices, key=lambda choice: (len(choice), choice))
    at = {choice: i for i, choice in enumerate(ordered)}
    if len(at) < len(ordered) or any(not choice or (choice[:-1] and choice[:-1] not in at) for choice in ordered):
        raise ValueError("a fixed tree names each of its nodes once, and their parents with them")
    return tuple(at.get(choice[:-1], -1) for choice in ordered), tuple((len(choice), choice[-1]) for choice in ordered)


@dataclass
class Experience:
    """What a run has seen of its own drafts. It depends on nothing but that, so the same seed gives the same trees.

    Counted at the root and at every accepted node: the children that were considered, with the drafter's confidence in each,
    and the one, if any, that the target then emitted. Whether they were in the tree that was sent does not matter.

    Older rounds count less, so that what was given up after some bad luck is tried again, and a change of text is noticed.
    """

    tokens: float = START[0]
    time: float = START[1]
    _counts: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by depth and rank: seen, emitted, sum of confidences

    def children(self, depth: int, confidence: Sequence[float], hit: int | None) -> None:
        """confidence: of the children at `depth`, by rank; hit: the rank of the one that was emitted."""
        for rank, own in enumerate(confidence):
            counts = self._counts.setdefault(_place(depth, rank), [0.0, 0.0, 0.0])
            counts[0] += 1
            counts[1] += rank == hit
            counts[2] += own

    def round(self, tokens: int, time: float) -> None:
        """Ends a round that brought so many tokens in so many target passes of one row."""
        self.tokens, self.time = self.tokens + tokens, self.time + time
        for counts in self._counts.values():
            counts[:] = [count * FADE for count in counts]

    def scales(self, depth: int, count: int) -> list[float]:
        """By rank: what to multiply a confidence by, so that at this depth it matches what is accepted."""
        found = [self._counts.get((min(depth, DEPTHS), rank), NOTHING) for rank in range(min(count, RANKS))]
        by_rank = [(hits + EXAMPLES) / (hoped + EXAMPLES) for _, hits, hoped in found]
        return by_rank + by_rank[-1:] * (count - len(by_rank))

    def usual(self, depth: int, rank: int) -> float:
        """Share of such nodes that are accepted where their parent was."""
        place = _place(depth, rank)
        seen, hits, _ = self._counts.get(place, NOTHING)
        return (hits + EXAMPLES * USUAL[place[1]]) / (seen + EXAMPLES)


def _place(depth: int, rank: int) -> tuple[int, int]:
    return min(depth, DEPTHS), min(rank, RANKS - 1)


@dataclass
class Grown:
    """Candidates in the order in which they were found: a parent stands before its children, a better sibling before a worse one."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    own: list[float] = field(default_factory=list)  # confidence given the parent
    scores: list[float] = field(default_factory=list)  # path probability, by the run's experience
    depth: list[int] = field(default_factory=list)
    families: dict[int, range] = field(default_factory=dict)  # children of each node that has any (-1: the root)
    passes: int = 1
    spent: float = 0.0  # in target passes

    def add(self, parent: int, own: Sequence[float], tokens: Sequence[int], past: Experience) -> None:
        """past: what the run has seen, by which confidences become chances."""
        depth, chance = (1, 1.0) if parent < 0 else (self.depth[parent] + 1, self.scores[parent])
        start = len(self.tokens)
        self.tokens += tokens
        self.own += own
        self.parents += [parent] * len(tokens)
        self.depth += [depth] * len(tokens)
        scales = past.scales(depth, len(own))
        self.scores += [chance * min(CERTAIN, confidence * scale) for confidence, scale in zip(own, scales, strict=True)]
        self.families[parent] = range(start, len(self.tokens))

    def learn(self, past: Experience, emitted: Sequence[int]) -> None:
        """emitted: what the round brought, accepted tokens and the target's own; followed through this tree as far as it goes."""
        node = -1
        for token in emitted:
            family = self.families.get(node)
            if family is None:
                break
            hit = next((i for i in family if self.tokens[i] == token), None)
            past.children(self.depth[family[0]], [self.own[i] for i in family], None if hit is None else hit - family[0])
            if hit is None:
                break
            node = hit

    def sent(self, kept: Sequence[int], size: int, q: torch.Tensor | None = None, reason: str = "", **note: Any) -> Draft:
        """The draft of those candidates, parents before children. size: nodes asked for, 0 for as many as pay; q: as in Draft."""
        at = {node: i for i, node in enumerate(kept)} | {-1: -1}
        told = {"score": [self.scores[i] for i in kept], "own": [self.own[i] for i in kept], "size": size, "grown": len(self.tokens)}
        tokens = torch.tensor([self.tokens[i] for i in kept], dtype=torch.long)
        parents = tuple(at[self.parents[i]] for i in kept)
        return Draft(tokens, parents, q, passes=self.passes, reason=reason, note=told | note)


Laws = tuple[Sequence[Sequence[float]], Sequence[Sequence[int]]]  # confidences and tokens, n rows of each, best first


def dynamic(
    first: Laws,
    expand: Callable[[list[int], Grown], Laws],
    *,
    width: int,
    depth: int,
    size: int,
    row_cost: float,
    draft_cost: float,
    past: Experience,
    ends: Collection[int] = (),
) -> tuple[Grown, list[int]]:
    """A tree grown level by level where the drafter is sure (EAGLE-2, Li et al. 2024), and which of its nodes to send.

    first: the root's children, one row of confidences and tokens. expand(nodes, grown): one draft pass over those candidates,
    giving their children. The best `width` candidates of a level are expanded, none past `depth` nor after a token of `ends`.
    size 0: only those whose children may pay are expanded, and growth stops where a pass cannot pay for itself.
    draft_cost: of a draft pass of one row.
    """
    grown = Grown(spent=draft_cost)
    grown.add(-1, first[0][0], first[1][0], past)
    start = 0
    for level in range(2, depth + 1):
        level_nodes = [i for i in range(start, len(grown.tokens)) if grown.tokens[i] not in ends]
        front = sorted(level_nodes, key=lambda i: -grown.scores[i])[:width]
        if size == 0:
            rate = past.tokens / past.time
            usual = [past.usual(level, rank) for rank in range(min(width, RANKS))]
            gains = [sum(max(0.0, grown.scores[i] * share - rate * row_cost) for share in usual) for i in front]
            front = [i for i, gain in zip(front, gains, strict=True) if gain > 0]
        cost = draft_cost * (1 + row_cost * (len(front) - 1))
        if not front or (size == 0 and sum(gains) <= rate * cost):
            break
        start = len(grown.tokens)
        for node, own, tokens in zip(front, *expand(front, grown), strict=True):
            grown.add(node, own, tokens, past)
        grown.passes, grown.spent = grown.passes + 1, grown.spent + cost
    return grown, best(grown.scores, grown.parents, size, row_cost, grown.spent, (past.tokens, past.time))
