"""One tree out of lists of likely next tokens: what the methods without weights of their own share.

A part is asked what may follow a path of drafted tokens. It answers with tokens and with the kind of evidence for each, and
the part's Tally says how often that kind was right. Nodes are taken in the order of their path probability, so the tree is
at every size the best one of that size, and nothing is looked up that would not be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from specviz.drafters.grow import CERTAIN, Experience
from specviz.tree import Draft, empty, tree

EXAMPLES = 16.0  # observations that what is believed beforehand weighs as much as


class Tally:
    """Chance that a candidate is accepted where its parent was, by kind of evidence: believed beforehand, then counted."""

    def __init__(self, prior: Sequence[float]):
        self.chance = [min(CERTAIN, chance) for chance in prior]
        self._hits = [chance * EXAMPLES for chance in self.chance]
        self._seen = [EXAMPLES] * len(prior)

    def learn(self, tokens: Sequence[int], kinds: Sequence[int], emitted: int) -> None:
        for token, kind in zip(tokens, kinds, strict=True):
            self._seen[kind] += 1
            self._hits[kind] += token == emitted
            self.chance[kind] = min(CERTAIN, self._hits[kind] / self._seen[kind])


class Part(Protocol):
    tally: Tally

    def after(self, path: tuple[int, ...]) -> tuple[Sequence[int], Sequence[int]]:
        """(tokens, kinds) of what may follow the committed ids and `path`, each token once."""
        ...


Answer = tuple[Sequence[int], Sequence[int]]


@dataclass
class Trie:
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # path probabilities, falling
    own: list[float] = field(default_factory=list)  # given the parent
    part: list[int] = field(default_factory=list)  # which part gave the node its chance
    asked: dict[tuple[int, ...], list[Answer]] = field(default_factory=dict)  # path -> answer of each part
    considered: int = 0

    def draft(self, size: int, **facts) -> Draft:
        """The tree as a draft of point masses. size: what was asked for, 0 where that was left to the chances."""
        if not self.tokens:
            return empty(facts.get("reason") or "no match")
        note = {
            "score": [round(score, 4) for score in self.scores],
            "own": [round(own, 4) for own in self.own],
            "size": size,
            "grown": self.considered,
            **facts.pop("note", {}),
        }
        return tree(self.tokens, self.parents, note=note, **facts)

    def learn(self, parts: Sequence[Part], emitted: Sequence[int]) -> None:
        """emitted: what the round brought, the target's own token included; followed as far as the parts were asked."""
        path: tuple[int, ...] = ()
        for token in emitted:
            answers = self.asked.get(path)
            if answers is None:
                return
            for part, (tokens, kinds) in zip(parts, answers, strict=True):
                part.tally.learn(tokens, kinds, token)
            path = (*path, token)


def sprout(parts: Sequence[Part], state, size: int, row_cost: float, past: Experience, spent: float = 0.0) -> Trie:
    """The best tree that the parts' answers allow, no deeper than state.room, nothing after an end of text.

    size > 0: that many nodes, if there are as many. size 0: nodes while they raise the run's tokens per time (the rule of
    `grow.best`, applied while growing). Where parts agree on a token, the larger chance counts. spent: drafting, in passes.
    """
    trie, order = Trie(), 0
    tokens, time = past.tokens + 1, past.time + 1 + spent
    heap: list[tuple[float, int, int, int, tuple[int, ...], float, int]] = [(-1.0, 0, -1, -2, (), 1.0, 0)]
    while heap:
        negative, _, token, parent, path, own, source = heappop(heap)
        score, node = -negative, len(trie.tokens)
        if parent == -2:
            node = -1
        elif len(trie.tokens) == size if size else score * time <= row_cost * tokens:
            break
        else:
            trie.tokens.append(token)
            trie.parents.append(parent)
            trie.scores.append(score)
            trie.own.append(own)
            trie.part.append(source)
            tokens, time = tokens + score, time + row_cost
        if len(path) >= state.room or token in state.stop_ids:
            continue
        answers = trie.asked[path] = [part.after(path) for part in parts]
        best: dict[int, tuple[float, int]] = {}
        for i, (part, (found, kinds)) in enumerate(zip(parts, answers, strict=True)):
            chance = part.tally.chance
            for one, kind in zip(found, kinds, strict=True):
                if one not in best or best[one][0] < chance[kind]:
                    best[one] = chance[kind], i
        trie.considered += len(best)
        least = 0.0 if size else row_cost * tokens / time / score
        for one, (chance, i) in best.items():
            if chance > least:
                order += 1
                heappush(heap, (-score * chance, order, one, node, (*path, one), chance, i))
    return trie
