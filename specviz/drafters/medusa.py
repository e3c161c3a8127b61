"""Medusa (Cai et al. 2024): several heads read one hidden state of the target, each guesses one later token; a tree combines them.

The root was drawn from the law after the last state that is known, so head 0 guesses the token behind the root, head k the
one k further on. No head knows what another one guessed: a node's confidence is its head's own, whatever its path. Nothing
is drawn, so there is no q, and the same tree is lossless under the token rule and not under Medusa's typical acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from specviz.drafters.feature import sure
from specviz.drafters.grow import Experience, Grown, Laws, best, dynamic
from specviz.drafters.medusa_trees import TREES
from specviz.heads import medusa
from specviz.tree import Draft, empty

COOL = 0.7  # heads are not taken to be surer than at this temperature, however cold the run is
RANKS = 10  # children a node may have, as in the published trees


@dataclass
class Medusa:
    head: medusa.Medusa
    tree: str = field(
        default="automatic",
        metadata={
            "choices": ["automatic", *TREES],
            "help": "automatic: grown each round where the heads are confident; else a published tree, the same in every round.",
        },
    )
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay."})
    depth: int = field(default=5, metadata={"min": 1, "max": 16, "help": "Levels of the tree at most, each of a head of its own."})
    row_cost: float = 0.045  # of one more row of a target pass, in passes of one row
    draft_cost: float = 0.2  # of all heads together: one pass through their output heads

    name: ClassVar[str] = "medusa"
    paper: ClassVar[str] = "Cai et al. 2024, Medusa"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = "head"

    @classmethod
    def load(cls, folder: Path, target: Any) -> dict[str, Any]:
        return {"head": medusa.Medusa.from_files(folder, target)}

    @classmethod
    def tiny(cls, target: Any) -> Self:
        return cls(head=medusa.Medusa.tiny(target))

    @property
    def source(self) -> str:
        return "medusa"

    def taps(self, config) -> tuple[int, ...]:
        (self._tap,) = self.head.taps(config)
        return (self._tap,)

    def begin(self, state) -> None:
        self._past = Experience()
        self._grown: Grown | None = None

    def propose(self, state) -> Draft:
        self._grown = None
        if state.room < 1 or len(state.ids) < 2:
            return empty("clipped" if state.room < 1 else "no features")
        levels = self._levels(state)
        if self.tree == "automatic":
            grown, kept = self._automatic(state, levels)
        else:
            grown, kept = self._published(state, levels)
        reason = "clipped" if state.room < min(self.depth, len(self.head.heads)) else "" if kept else "unsure"
        return self._sent(grown, kept, levels, reason)

    def accept(self, state, verdict, scores) -> None:
        if self._grown is None:  # nothing was drafted
            return
        emitted = state.ids[len(state.ids) - state.new :]
        self._grown.learn(self._past, emitted)
        self._past.round(len(emitted), 1 + self.row_cost * (len(scores.logits) - 1) + self.draft_cost)

    def _levels(self, state) -> list[tuple[list[float], list[int]]]:
        """What each head finds likeliest: confidences and the target's ids, by rank."""
        logits = self.head(state.hidden[self._tap][-1:])[0, : min(self.depth, state.room)]
        return list(zip(*sure(logits, RANKS, max(state.sampling.temperature, COOL), self.head.d2t), strict=True))

    def _automatic(self, state, levels) -> tuple[Grown, list[int]]:
        """Deeper levels cost no further pass, as every head has spoken already."""

        def expand(nodes: list[int], grown: Grown) -> Laws:
            own, tokens = levels[grown.depth[nodes[0]]]
            return [own] * len(nodes), [tokens] * len(nodes)

        own, tokens = levels[0]
        grown, _ = dynamic(
            ([own], [tokens]),
            expand,
            width=RANKS,
            depth=len(levels),
            size=self.size,
            row_cost=self.row_cost,
            draft_cost=0.0,
            past=self._past,
            ends=state.stop_ids,
        )
        grown.passes = 1  # however deep: the heads have all spoken at once
        return grown, self._best(grown)

    def _published(self, state, levels) -> tuple[Grown, list[int]]:
        """The tree as far as there are heads, ranks and room for it; with a size its first nodes, else those that pay."""
        choices = [c for c in TREES[self.tree] if len(c) <= len(levels) and max(c) < len(levels[0][1])]
        families: dict[tuple[int, ...], list[int]] = {}
        for choice in choices[: self.size or len(choices)]:
            families.setdefault(choice[:-1], []).append(choice[-1])
        grown, at = Grown(), {(): -1}
        for path in sorted(families, key=len):
            parent, ranks = at.get(path), sorted(families[path])
            if parent is None or (parent >= 0 and grown.tokens[parent] in state.stop_ids):
                continue
            own, tokens = levels[len(path)]
            grown.add(parent, [own[rank] for rank in ranks], [tokens[rank] for rank in ranks], self._past)
            at |= {(*path, rank): node for rank, node in zip(ranks, grown.families[parent], strict=True)}
        return grown, list(range(len(grown.tokens))) if self.size else self._best(grown)

    def _best(self, grown: Grown) -> list[int]:
        return best(grown.scores, grown.parents, self.size, self.row_cost, self.draft_cost, (self._past.tokens, self._past.time))

    def _sent(self, grown: Grown, kept: Sequence[int], levels, reason: str) -> Draft:
        self._grown = grown
        rank = [levels[grown.depth[i] - 1][1].index(grown.tokens[i]) for i in kept]
        return grown.sent(kept, self.size, reason=reason, rank=rank, heads=len(levels))
