"""Token Recycling (Luo et al. 2024): the target's likeliest successors of each token, when last seen, grown into a tree.

Every scored row names its token's likeliest successors whether or not that token was accepted, so the rows that speculation
wastes are what the next tree is made of. The paper keys them by one token and grows a fixed tree of ranks. Here the last
few tokens are the key, shorter ones where those are new, and the tree grows where such successors were accepted before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from specviz.drafters.grow import Experience
from specviz.drafters.trie import Answer, Tally, Trie, sprout
from specviz.tree import Draft, empty

# Share accepted by how long the key was, whether the successor ranked first, and how likely the target had called it: within
# these bounds, then copied from the prompt. Counted with SmolLM2-135M at temperature 0 on prompts of six tasks.
BOUNDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
PRIOR = (
    ((0.10, 0.10, 0.10, 0.12, 0.15, 0.30, 0.28, 0.32, 0.38, 0.20), (0.02, 0.03, 0.05, 0.08, 0.11, 0.15, 0.15, 0.15, 0.15, 0.08)),
    ((0.20, 0.20, 0.20, 0.30, 0.45, 0.45, 0.48, 0.60, 0.85, 0.40), (0.01, 0.04, 0.06, 0.12, 0.14, 0.20, 0.20, 0.20, 0.20, 0.17)),
    ((0.30, 0.30, 0.30, 0.40, 0.70, 0.55, 0.70, 0.88, 0.92, 0.80), (0.01, 0.02, 0.03, 0.04, 0.08, 0.20, 0.20, 0.20, 0.20, 0.20)),
)
COPIED = len(BOUNDS) + 1
KINDS = 2 * (COPIED + 1)
LONGEST = len(PRIOR)


@dataclass
class TokenRecycling:
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay for themselves."})
    width: int = field(default=8, metadata={"min": 1, "max": 16, "help": "Successors remembered of each key."})
    context: int = field(
        default=3, metadata={"min": 1, "max": LONGEST, "help": "Tokens of the longest key; 1 is the paper's matrix of single tokens."}
    )
    row_cost: float = 0.045

    name: ClassVar[str] = "token_recycling"
    paper: ClassVar[str] = "Luo et al. 2024, Token Recycling"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> TokenRecycling:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self.tally = Tally([chance for order in PRIOR for rank in order for chance in rank])
        self._past, self._trie = Experience(), Trie()
        self._next: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}  # key -> (successors, kinds)
        self._tail: tuple[int, ...] = ()
        for at in range(1, len(state.ids)):
            for length in range(1, min(self.context, at) + 1):
                key = tuple(state.ids[at - length : at])
                before = [one for one in self._next.get(key, ([],))[0] if one != state.ids[at]]
                copied = [state.ids[at], *before[: self.width - 1]]  # the latest first
                self._next[key] = copied, [COPIED + (rank > 0) * (KINDS // 2) for rank in range(len(copied))]
        self._root(state)

    def propose(self, state) -> Draft:
        if state.room < 1:
            self._trie = Trie()
            return empty("clipped")
        self._trie = sprout(self, state, self.size, self.row_cost, self._past)
        return self._trie.draft(self.size)

    def accept(self, state, verdict, scores) -> None:
        emitted = state.ids[len(state.ids) - state.new :]
        self._trie.learn(self, emitted)
        self._past.round(state.new, 1 + self.row_cost * (len(scores.tokens) - 1))
        self.remember(state, verdict, scores)

    def remember(self, state, verdict, scores) -> None:
        """Takes the successors that the target named in every row; the accepted ones last, so that they stay."""
        successors, kinds = likeliest(scores.logits, self.width)
        keys: list[tuple[int, ...]] = []
        for token, parent in zip(scores.tokens, scores.parents, strict=True):
            before = keys[parent] if parent >= 0 else self._tail[:-1]
            keys.append((*before, token)[-self.context :])
        accepted = [0, *(node + 1 for node in verdict.path)]
        for row in [*(set(range(len(keys))) - set(accepted)), *accepted]:
            for length in range(1, len(keys[row]) + 1):
                self._next[keys[row][-length:]] = successors[row], kinds[row]
        self._root(state)

    def after(self, path: tuple[int, ...]) -> Answer:
        key = (*self._tail, *path)[-self.context :]
        for start in range(len(key)):
            if (found := self._next.get(key[start:])) is not None:
                order = (len(key) - start - 1) * KINDS
                return self.tally.answer(found[0], [order + kind for kind in found[1]])
        return Answer()

    def learn(self, answer: Answer, emitted: int) -> None:
        self.tally.learn(answer, emitted)

    def _root(self, state) -> None:
        self._tail = tuple(state.ids[-self.context :])


def likeliest(logits: torch.Tensor, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """(tokens, kinds) of the `count` best of each row of float[R, V], best first. A kind is the probability among these, within
    BOUNDS, and whether the token ranks first."""
    values, tokens = best_of(logits, min(count, logits.shape[-1]))
    bounds = torch.tensor(BOUNDS, dtype=values.dtype, device=values.device)
    kinds = torch.bucketize(values.softmax(-1), bounds, right=True)
    kinds[:, 1:] += KINDS // 2
    return tokens.tolist(), kinds.tolist()


def best_of(logits: torch.Tensor, count: int, block: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """logits.topk(count): the best `count` stand in the `count` blocks of the highest maxima, which saves most of the search."""
    rows, vocab = logits.shape
    if vocab % block or vocab < 8 * block * count:
        return logits.topk(count)
    blocks = logits.reshape(rows, -1, block)
    highest = blocks.amax(-1).topk(count).indices  # int64[R, count]
    values, at = blocks.gather(1, highest[:, :, None].expand(-1, -1, block)).flatten(1).topk(count)
    return values, highest.gather(1, at // block) * block + at % block
