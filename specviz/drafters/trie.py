"""One tree out of lists of likely next tokens: what the methods without weights of their own share.

A part is asked what may follow a path of drafted tokens. It answers with tokens and the chance of each, given that the path is
right, and learns from what the round brought. Nodes are taken in the order of their path probability, so the tree is at every
size the best one of that size, and nothing is looked up that would not be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from specviz.drafters.grow import CERTAIN, Experience
from specviz.tree import Draft, empty, tree

EXAMPLES = 16.0  # observations that what is believed beforehand weighs as much as


class Answer(NamedTuple):
    tokens: Sequence[int] = ()  # each once, best first
    chances: Sequence[float] = ()
    evidence: Any = ()  # what the part needs to learn from it


class Part(Protocol):
    def after(self, path: tuple[int, ...]) -> Answer: ...  # what may follow the committed ids and `path`

    def learn(self, answer: Answer, emitted: int) -> None: ...  # the token that did follow


class Tally:
    """Chance that a candidate is accepted where its parent was, by kind of evidence: believed beforehand, then counted."""

    def __init__(self, prior: Sequence[float]):
        self.chance = [min(CERTAIN, chance) for chance in prior]
        self._hits = [chance * EXAMPLES for chance in self.chance]
        self._seen = [EXAMPLES] * len(prior)

    def answer(self, tokens: Sequence[int], kinds: Sequence[int]) -> Answer:
        return Answer(tokens, [self.chance[kind] for kind in kinds], kinds)

    def learn(self, answer: Answer, emitted: int) -> None:
        for token, kind in zip(answer.tokens, answer.evidence, strict=True):
            self._seen[kind] += 1
            self._hits[kind] += token == emitted
            self.chance[kind] = min(CERTAIN, self._hits[kind] / self._seen[kind])


class Heard(NamedTuple):
    answers: list[Answer]  # of each part
    who: list[int]  # for each token, the part that gave it its chance
    hoped: list[float]  # that chance, where several parts spoke
    shared: list[int]  # how many other parts said it too


class Union:
    """Several parts as one. The surest is heard first, the next one's other tokens share what chance it left, and so on.

    Where parts say the same token, the mean of their chances counts: the surer one is more often too sure. What a part says
    alone while others speak is less likely than its record has it: by how much is counted for each part.
    """

    def __init__(self):
        self.parts: list[Part] = []
        self._hits: list[float] = []
        self._hoped: list[float] = []

    def add(self, part: Part, alone: float) -> None:
        """alone: the factor that is believed beforehand for what this part says alone."""
        self.parts.append(part)
        self._hits.append(EXAMPLES * alone)
        self._hoped.append(EXAMPLES)

    def after(self, path: tuple[int, ...]) -> Answer:
        answers = [part.after(path) for part in self.parts]
        speak = sorted((i for i, answer in enumerate(answers) if answer.tokens), key=lambda i: -max(answers[i].chances))
        if not speak:
            return Answer(evidence=Heard(answers, [], [], []))
        first = answers[speak[0]]
        at = {token: i for i, token in enumerate(first.tokens)}
        chances, who, shared = list(first.chances), [speak[0]] * len(at), [0] * len(at)
        if len(speak) == 1:
            return Answer(first.tokens, chances, Heard(answers, who, [], []))
        for i in speak[1:]:
            left = max(0.0, 1.0 - sum(chances))
            for token, chance in zip(answers[i].tokens, answers[i].chances, strict=True):
                if token in at:
                    said = shared[at[token]] = shared[at[token]] + 1
                    chances[at[token]] += (chance - chances[at[token]]) / (said + 1)
                else:
                    at[token] = len(at)
                    chances.append(left * chance)
                    who.append(i)
                    shared.append(0)
        factor = [hits / hoped for hits, hoped in zip(self._hits, self._hoped, strict=True)]
        scaled = [chance if both else min(CERTAIN, chance * factor[i]) for chance, i, both in zip(chances, who, shared, strict=True)]
        return Answer(list(at), scaled, Heard(answers, who, chances, shared))

    def learn(self, answer: Answer, emitted: int) -> None:
        heard = answer.evidence
        for part, one in zip(self.parts, heard.answers, strict=True):
            part.learn(one, emitted)
        for token, part, hoped, both in zip(answer.tokens, heard.who, heard.hoped, heard.shared, strict=False):
            if not both:
                self._hits[part] += token == emitted
                self._hoped[part] += hoped


@dataclass
class Trie:
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # path probabilities, falling
    own: list[float] = field(default_factory=list)  # given the parent
    paths: list[tuple[int, ...]] = field(default_factory=list)  # tokens down to the node
    asked: dict[tuple[int, ...], Answer] = field(default_factory=dict)
    considered: int = 0

    def draft(self, size: int, **facts) -> Draft:
        """The tree as a draft of point masses. size: what was asked for, 0 where that was left to the chances."""
        if not self.tokens:
            return empty("no match", facts.get("passes", 0))
        note = {
            "score": [round(score, 4) for score in self.scores],
            "own": [round(own, 4) for own in self.own],
            "size": size,
            "grown": self.considered,
            **facts.pop("note", {}),
        }
        return tree(self.tokens, self.parents, note=note, **facts)

    def learn(self, part: Part, emitted: Sequence[int]) -> None:
        """emitted: what the round brought, the target's own token included; followed as far as the part was asked."""
        path: tuple[int, ...] = ()
        for token in emitted:
            if (answer := self.asked.get(path)) is None:
                return
            part.learn(answer, token)
            path = (*path, token)


def sprout(part: Part, state, size: int, row_cost: float, past: Experience, spent: float = 0.0) -> Trie:
    """The best tree that the part's answers allow, no deeper than state.room, nothing after an end of text.

    size > 0: that many nodes, if there are as many. size 0: nodes while they raise the run's tokens per time (the rule of
    `grow.best`, applied while growing). spent: on drafting, in passes.
    """
    trie, order = Trie(), 0
    tokens, time = past.tokens + 1, past.time + 1 + spent
    heap: list[tuple[float, int, int, float, tuple[int, ...]]] = [(-1.0, 0, -1, 1.0, ())]
    while heap:
        negative, _, parent, own, path = heappop(heap)
        score, node = -negative, len(trie.tokens) if path else -1
        if path:
            if node == size if size else score * time <= row_cost * tokens:
                break
            trie.tokens.append(path[-1])
            trie.parents.append(parent)
            trie.scores.append(score)
            trie.own.append(own)
            trie.paths.append(path)
            tokens, time = tokens + score, time + row_cost
        if len(path) >= state.room or (path and path[-1] in state.stop_ids):
            continue
        answer = trie.asked[path] = part.after(path)
        trie.considered += len(answer.tokens)
        least = 0.0 if size else row_cost * tokens / time / score
        for token, chance in zip(answer.tokens, answer.chances, strict=True):
            if chance > least:
                order += 1
                heappush(heap, (-score * chance, order, node, chance, (*path, token)))
    return trie
