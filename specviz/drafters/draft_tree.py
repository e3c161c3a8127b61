"""Draft model, as a tree (Miao et al. 2024, SpecInfer): a smaller model writes several continuations, the target judges all in one pass.

The tree grows where the draft is sure, as in EAGLE-2 (Li et al. 2024). Nothing is drawn, so there is no q and any choice of
nodes is lossless.

The draft's cache keeps committed tokens alone. A level is read behind them together with the branches above it, which are read
again each time: a row of a small model costs little beside its pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch

from specviz.drafters.draft_model import readable
from specviz.drafters.feature import COOL, sure
from specviz.drafters.grow import Experience, Grown, Laws, dynamic
from specviz.heads.draft import untrained
from specviz.session import Target
from specviz.tree import Draft, empty


@dataclass
class DraftTree:
    model: Target
    d2t: torch.Tensor | None = None  # int64[Vd]: target id of each draft id, where the draft has a trimmed head
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay."})
    depth: int = field(default=8, metadata={"min": 1, "max": 16, "help": "Levels of the tree at most, each a draft pass."})
    width: int = field(default=8, metadata={"min": 1, "max": 32, "help": "Nodes expanded a level, and children of each."})
    row_cost: float = 0.045  # of one more row of a target pass, in passes of one row
    draft_cost: float = 0.1  # of a draft pass

    name: ClassVar[str] = "draft_tree"
    paper: ClassVar[str] = "Miao et al. 2024, SpecInfer; Li et al. 2024, EAGLE-2"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = "model"

    @property
    def source(self) -> str:
        return self.model.name

    @classmethod
    def tiny(cls, target) -> Self:
        return cls(model=untrained(target))

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self._past = Experience()
        self._grown: Grown | None = None
        self._session = self.model.session(len(state.ids) + state.room + 64)
        if len(state.ids) <= self.model.context:  # a longer prompt it cannot read, and propose() never asks it to
            self._session.prefill(readable(state.ids, self.model))

    def propose(self, state) -> Draft:
        self._grown = None
        room = min(state.room, self.model.context - len(state.ids))
        if room < 1:
            return empty("clipped")
        missing = readable(state.ids[self._session.length :], self.model)
        first = self._session.forward(missing, tuple(range(-1, len(missing) - 1)), rows_wanted=1)
        committed, read = self._session.length, []  # read: candidates, as they stand behind the committed tokens

        def expand(nodes: list[int], grown: Grown) -> Laws:
            read.extend(nodes)
            row = {node: i for i, node in enumerate(read)} | {-1: -1}
            self._session.rewind(committed)
            tokens = readable([grown.tokens[i] for i in read], self.model)
            scores = self._session.forward(tokens, tuple(row[grown.parents[i]] for i in read), rows_wanted=len(nodes))
            return self._sure(state, scores.logits)

        grown, kept = dynamic(
            self._sure(state, first.logits),
            expand,
            width=self.width,
            depth=min(self.depth, room),
            size=self.size,
            row_cost=self.row_cost,
            draft_cost=self.draft_cost,
            past=self._past,
            ends=state.stop_ids,
        )
        self._session.rewind(committed)
        self._grown = grown
        return grown.sent(kept, self.size, reason="clipped" if room < self.depth else "" if kept else "unsure")

    def accept(self, state, verdict, scores) -> None:
        if self._grown is None:  # nothing was drafted
            return
        emitted = state.ids[len(state.ids) - state.new :]
        self._grown.learn(self._past, emitted)
        self._past.round(len(emitted), 1 + self.row_cost * (len(scores.logits) - 1) + self._grown.spent)

    def _sure(self, state, logits: torch.Tensor) -> Laws:
        d2t = None if self.d2t is None else self.d2t.to(logits.device)
        said = logits[:, : state.vocab] if d2t is None else logits  # rows beyond the target's vocabulary are no tokens
        return sure(said, self.width, max(state.sampling.temperature, COOL), d2t)
