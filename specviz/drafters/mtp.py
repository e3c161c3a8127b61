"""Multi-token prediction (DeepSeek-V3 2024): the module that was trained with the model, applied to its own output again and again.

As a chain, tokens are drawn from q one after the other, and drafting stops after an unsure one, which is kept. As a tree, it
grows where the module is sure, as in EAGLE-2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from specviz.drafters.feature import ConfidentTree
from specviz.heads.mtp import Mtp as Head
from specviz.tree import Draft, empty


@dataclass
class Mtp(ConfidentTree):
    shape: str = field(
        default="tree",
        metadata={"choices": ["tree", "chain"], "help": "tree: size, depth, width count; chain: gamma, confidence, drawn from q."},
    )
    gamma: int = field(default=4, metadata={"min": 1, "max": 32, "help": "Tokens drafted a round, in a chain."})
    confidence: float = field(
        default=0.3,
        metadata={
            "min": 0.0,
            "max": 1.0,
            "step": 0.05,
            "help": "Stop a chain after a token that the module gave less than this (before sampling settings); 0 = off.",
        },
    )

    name: ClassVar[str] = "mtp"
    paper: ClassVar[str] = "DeepSeek-AI 2024; Gloeckle et al. 2024"
    weights = Head

    def propose(self, state) -> Draft:
        return self._chain(state) if self.shape == "chain" else super().propose(state)

    def _chain(self, state) -> Draft:
        if reason := self._blocked(state):
            return empty(reason)
        wanted = min(self.gamma, state.room)
        tokens: list[int] = []
        laws: list[torch.Tensor] = []
        own: list[float] = []
        logits, reason = self._read(state), "clipped" if wanted < self.gamma else ""
        while True:
            law, ids = self._law(state, logits, tokens)
            at = state.coins.draw(law)[1]
            laws.append(law)
            tokens.append(at if ids is None else int(ids[at]))
            own.append(float(self._confidence(logits, tokens[-1])))
            # whatever ends the chain, its newest token stays in it: dropping it would change the output law
            if len(tokens) == wanted:
                break
            if tokens[-1] in state.stop_ids:
                reason = "end of text"
                break
            if own[-1] < self.confidence:
                reason = "unsure"
                break
            logits = self._recursion.draft(state, tokens[-1:], [len(tokens) - 2])[0]
        self._recursion.drop()
        note = {"gamma": self.gamma, "own": own, "taps": list(self._taps)}
        parents, q = tuple(range(-1, len(tokens) - 1)), self._wide(state, laws, ids)
        return Draft(torch.tensor(tokens), parents, q, passes=len(tokens), reason=reason, note=note)

    def _confidence(self, logits: torch.Tensor, token: int) -> torch.Tensor:
        """The module's own probability of one of the target's ids."""
        at = token if self.head.d2t is None else (self.head.d2t == token).nonzero()[0, 0]
        return (logits[at] - logits.logsumexp(-1)).exp()
