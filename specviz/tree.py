"""Draft: candidate tokens as a tree, and the laws they were drawn from.

A chain is a tree with one child a node, plain decoding is a tree with no node. Node i follows node parents[i], and the
children of the last committed token (the root, which is not a node) have parent -1.

The q contract. Row i of `q` is the law that token i was ACTUALLY drawn from, after every processor. Siblings drawn
without replacement carry their own renormalised rows. `q is None` means that the tokens were chosen without randomness,
i.e. each from a point mass. Pruning or re-ranking tokens after they were drawn is lossless only when `q is None`;
stopping a chain is lossless only if the newest drawn token is kept. Both mistakes are silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch


@dataclass(frozen=True)
class Draft:
    tokens: torch.Tensor  # int64[N]
    parents: tuple[int, ...]  # parents[i] < i
    q: torch.Tensor | None = None  # float32[N, V], or None: point masses
    probe: tuple[bool, ...] = ()  # scored but never accepted; empty: none is
    passes: int = 0  # sequential drafter forwards spent
    reason: str = ""  # why there are fewer tokens than the method's knobs ask for
    note: dict[str, Any] = field(default_factory=dict)  # JSON facts for this method's view

    def __post_init__(self):
        if len(self.tokens) != len(self.parents) or any(not -1 <= parent < i for i, parent in enumerate(self.parents)):
            raise ValueError("every node of a draft needs a parent that stands before it")
        if self.q is not None and len(self.q) != len(self.tokens):
            raise ValueError("q needs one row for each drafted token")

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """1 for children of the root."""
        depth: list[int] = []
        for parent in self.parents:
            depth.append(1 if parent < 0 else depth[parent] + 1)
        return tuple(depth)

    @cached_property
    def mask(self) -> torch.Tensor:
        """bool[N, N]: node i sees node j exactly when j is i or an ancestor of i."""
        mask = torch.eye(len(self), dtype=torch.bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                mask[i] |= mask[parent]
        return mask

    @property
    def is_chain(self) -> bool:
        return all(parent == i - 1 for i, parent in enumerate(self.parents))

    def is_probe(self, node: int) -> bool:
        return bool(self.probe) and self.probe[node]

    def children(self, node: int) -> list[int]:
        """Candidates after `node` (-1: the root), in the order in which they are to be tried."""
        return [i for i, parent in enumerate(self.parents) if parent == node and not self.is_probe(i)]

    def path(self, node: int) -> list[int]:
        """Nodes from a child of the root down to `node`; empty for -1."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def history(self, row: int, ids: torch.Tensor) -> torch.Tensor:
        """int64[L]: what a row follows: row 0 the committed ids, row i + 1 those and the path down to node i."""
        return torch.cat([ids, self.tokens[self.path(row - 1)]])


def empty(reason: str = "", passes: int = 0) -> Draft:
    return Draft(torch.empty(0, dtype=torch.long), (), reason=reason, passes=passes)


def chain(tokens: Sequence[int], q: Sequence[torch.Tensor] | None = None, **facts: Any) -> Draft:
    """tokens one after the other; q: float32[V] for each, or None where they were chosen without randomness."""
    rows = torch.stack(list(q)) if q else None
    return Draft(torch.tensor(tokens, dtype=torch.long), tuple(range(-1, len(tokens) - 1)), rows, **facts)


def tree(tokens: Sequence[int], parents: Sequence[int], q: Sequence[torch.Tensor] | None = None, **facts: Any) -> Draft:
    rows = torch.stack(list(q)) if q else None
    return Draft(torch.tensor(tokens, dtype=torch.long), tuple(parents), rows, **facts)
