"""EAGLE-1 (Li et al. 2024): a fixed tree over a head that predicts the target's next feature.

Above temperature 0 the siblings of a node are drawn without replacement, each from the law that is left, renormalised; at 0
they are the likeliest tokens. The tree is the published one or a part of it, chosen before anything is drawn: by what earlier
rounds accepted at each depth and rank, never by this round's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from specviz.drafters.feature import HeadDrafter
from specviz.drafters.grow import RANKS, Grown, best, static
from specviz.heads.eagle import Eagle
from specviz.tree import Draft, empty

# ranks from the root down; SafeAILab/EAGLE, v1, "mc_sim_7b_63"
TREE = (
    *((0,), (1,), (2,), (3,)),
    *((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)),
    *((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (1, 0, 0)),
    *((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2)),
    *((0, 0, 0, 0, 0), (0, 0, 0, 0, 1)),
)
PARENTS, PLACES = static(TREE)


@dataclass
class Eagle1(HeadDrafter):
    size: int = field(default=0, metadata={"min": 0, "max": 25, "help": "Nodes of the published tree; 25 = all, 0 = as many as pay."})
    depth: int = field(default=5, metadata={"min": 1, "max": 5, "help": "Levels of the tree, each a draft pass."})

    name: ClassVar[str] = "eagle1"
    paper: ClassVar[str] = "Li et al. 2024, EAGLE"
    weights = Eagle

    def propose(self, state) -> Draft:
        if reason := self._blocked(state):
            return empty(reason)
        grown, kept, laws, ids = Grown(spent=self.draft_cost), [], [], None
        plan = self._plan(min(self.depth, state.room))
        families: dict[int, list[int]] = {}  # planned children of each node of the tree
        for node in plan:
            families.setdefault(PARENTS[node], []).append(node)
        at, row = {-1: -1}, {-1: -1}  # of a planned node: its candidate, and its row in the head's cache
        level, logits = [-1], self._read(state)[None]
        while level:
            for node, scores in zip(level, logits, strict=True):
                count = len(families[node])
                if state.sampling.temperature:
                    own, tokens, rows, ids = self._drawn(state, scores, self._path(grown, at[node]), count)
                    laws += rows
                else:  # ranks that are not sent are counted too
                    (own,), (tokens,) = self._sure(state, scores[None], max(count, RANKS))
                start = len(grown.tokens)
                grown.add(at[node], own, tokens, self._past)
                for rank, child in enumerate(families[node][: len(tokens)]):
                    at[child] = start + rank
                    kept.append(start + rank)
            front = [node for node in plan if node in at and node in families and PARENTS[node] in level]
            front = [node for node in front if grown.tokens[at[node]] not in state.stop_ids]
            if front:
                logits = self._recursion.draft(state, [grown.tokens[at[node]] for node in front], [row[PARENTS[node]] for node in front])
                row |= {node: len(row) - 1 + i for i, node in enumerate(front)}
                grown.passes += 1
                grown.spent += self.draft_cost * (1 + self.row_cost * (len(front) - 1))
            level = front
        self._recursion.drop()
        reason = "clipped" if state.room < self.depth else ""
        return self._sent(grown, kept, self.size, reason, self._wide(state, laws, ids) if laws else None)

    def _plan(self, depth: int) -> list[int]:
        """Which nodes of the published tree to send, parents first. At least one, or nothing would be learned of the rest."""
        chances, usual = [], self._past.usual
        for parent, (level, rank) in zip(PARENTS, PLACES, strict=True):  # a later sibling is taken for no better than an earlier one
            own = min(usual(level, earlier) for earlier in range(rank + 1))
            chances.append(own * (chances[parent] if parent >= 0 else 1.0))
        within = [sum(level <= limit for level, _ in PLACES) for limit in range(depth + 1)]
        if self.size:
            return best(chances[: within[depth]], PARENTS[: within[depth]], self.size, self.row_cost)
        plans, before = [], (self._past.tokens, self._past.time)
        for limit in range(1, depth + 1):
            spent = self.draft_cost * limit
            plan = best(chances[: within[limit]], PARENTS[: within[limit]], 0, self.row_cost, spent, before) or [0]
            gain = before[0] + 1 + sum(chances[node] for node in plan)
            plans.append((gain / (before[1] + 1 + spent + self.row_cost * len(plan)), plan))
        return max(plans, key=lambda pair: pair[0])[1]

    def _drawn(self, state, logits: torch.Tensor, path: list[int], count: int):
        """(probabilities, tokens, laws, ids of the laws' entries) of `count` siblings, fewer where the law has no more tokens."""
        law, ids = self._law(state, logits, path)
        own, tokens, rows = [], [], []
        while len(rows) < count and (mass := law.sum()) > 0:
            row = law / mass
            _, token = state.coins.draw(row)
            own.append(float(row[token]))
            rows.append(row)
            tokens.append(token if ids is None else int(ids[token]))
            law = row.clone()
            law[token] = 0
        return own, tokens, rows, ids

    @staticmethod
    def _path(grown: Grown, node: int) -> list[int]:
        tokens: list[int] = []
        while node >= 0:
            tokens.insert(0, grown.tokens[node])
            node = grown.parents[node]
        return tokens
