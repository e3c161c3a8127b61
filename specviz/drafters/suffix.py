"""SuffixDecoding (Oliaro et al. 2024): what followed the longest repeat of the last tokens, as a tree with counts.

Prompt lookup copies the latest occurrence; this counts all of them, and believes a long repeat more than a short one. Every
run of up to `match` tokens of the prompt and the answer is kept with what followed it how often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from specviz.drafters.grow import Experience
from specviz.drafters.trie import Answer, Tally, Trie, sprout
from specviz.tree import Draft, empty

# Share accepted by how long the repeat was (within LENGTHS) and what followed it: always this but seen once; always this;
# this in at least half of the cases; in a quarter; in fewer. Counted with SmolLM2-135M at temperature 0 on prompts of six tasks.
LENGTHS = (1, 2, 3, 4, 5, 7, 10, 16)
PRIOR = (
    (0.32, 0.70, 0.18, 0.13, 0.045),
    (0.50, 0.73, 0.28, 0.15, 0.07),
    (0.70, 0.78, 0.40, 0.20, 0.08),
    (0.78, 0.88, 0.45, 0.20, 0.10),
    (0.78, 0.90, 0.50, 0.25, 0.10),
    (0.82, 0.92, 0.50, 0.25, 0.10),
    (0.92, 0.96, 0.50, 0.25, 0.10),
    (0.94, 0.98, 0.50, 0.25, 0.10),
)
BUCKET = [max(i for i, least in enumerate(LENGTHS) if least <= max(1, length)) for length in range(LENGTHS[-1] + 1)]
KINDS = len(PRIOR[0])


@dataclass
class Suffix:
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay for themselves."})
    match: int = field(default=16, metadata={"min": 1, "max": 32, "help": "Longest run of last tokens that is looked up."})
    factor: float = field(
        default=2.0,
        metadata={"min": 0.25, "max": 8.0, "step": 0.25, "help": "Tokens drafted in a row, at most, for each token that matched."},
    )
    min_prob: float = field(
        default=0.1, metadata={"min": 0.0, "max": 1.0, "step": 0.05, "help": "Leave out what followed in a smaller share of the cases."}
    )
    row_cost: float = 0.045

    name: ClassVar[str] = "suffix"
    paper: ClassVar[str] = "Oliaro et al. 2024, SuffixDecoding"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> Suffix:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self.tally = Tally([chance for length in PRIOR for chance in length])
        self._past, self._trie = Experience(), Trie()
        self._followed: dict[tuple[int, ...], dict[int, int]] = {}  # run of tokens -> next token -> how often, the latest last
        self._ids: list[int] = []
        self.read(state)

    def propose(self, state) -> Draft:
        self._trie = Trie()
        if state.room < 1:
            return empty("clipped")
        self._trie = sprout(self, state, self.size, self.row_cost, self._past)
        return self._trie.draft(self.size, note={"match": self.matched})

    def accept(self, state, verdict, scores) -> None:
        self._trie.learn(self, state.ids[len(state.ids) - state.new :])
        self._past.round(state.new, 1 + self.row_cost * (len(scores.tokens) - 1))
        self.read(state)

    def read(self, state) -> None:
        """Takes in the ids that are new since the last call, and finds how long a run of the last ones was seen before."""
        ids = self._ids
        for token in state.ids[len(ids) :]:
            for length in range(1, min(self.match, len(ids)) + 1):
                counts = self._followed.setdefault(tuple(ids[-length:]), {})
                counts[token] = counts.pop(token, 0) + 1
            ids.append(token)
        self._tail = tuple(ids[-self.match :])
        self.matched, _ = self._longest(self._tail)

    def after(self, path: tuple[int, ...]) -> Answer:
        if len(path) >= max(1, int(self.factor * self.matched)):
            return Answer()
        length, counts = self._longest((*self._tail, *path)[-self.match :])
        if not counts:
            return Answer()
        total, start = sum(counts.values()), BUCKET[min(length, LENGTHS[-1])] * KINDS
        tokens, kinds = [], []
        for token in reversed(sorted(counts, key=counts.__getitem__)):  # the latest first among equals
            share = counts[token] / total
            if share < self.min_prob:
                break
            tokens.append(token)
            kinds.append(start + ((1 if total > 1 else 0) if share == 1 else 2 if share >= 0.5 else 3 if share >= 0.25 else 4))
        return self.tally.answer(tokens, kinds)

    def learn(self, answer: Answer, emitted: int) -> None:
        self.tally.learn(answer, emitted)

    def _longest(self, run: tuple[int, ...]) -> tuple[int, dict[int, int]]:
        """(length, what followed) of the longest end of `run` that was followed by something before."""
        for start in range(len(run)):
            if (counts := self._followed.get(run[start:])) is not None:
                return len(run) - start, counts
        return 0, {}
