"""Early exit: the target drafts for itself with some of its layers, its own final norm and its own head. No further weights.

LayerSkip (Elhoushi et al. 2024) leaves after the first layers, and trains the model for it; Draft & Verify (Zhang et al. 2024)
skips layers in between, of a model as it is. Either keeps a share of the layers, so a drafted token costs about that share of a
pass: it pays only where most drafts are accepted. The layers kept here have a cache of their own, which costs memory, and reads
again what the target's own first layers would know; in return they may be any layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from specviz.drafters.draft_model import DraftModel
from specviz.tree import Draft


@dataclass
class EarlyExit:
    model: Any  # the target
    share: float = field(default=0.7, metadata={"min": 0.05, "max": 0.95, "step": 0.05, "help": "Share of the target's layers that draft."})
    keep: str = field(
        default="ends",
        metadata={
            "choices": ["first", "ends"],
            "help": "first: leave after the first layers; ends: skip some behind the middle, which an untrained model bears better.",
        },
    )
    gamma: int = field(default=2, metadata={"min": 1, "max": 32, "help": "Tokens drafted a round."})
    confidence: float = field(
        default=0.5,
        metadata={
            "min": 0.0,
            "max": 1.0,
            "step": 0.05,
            "help": "Stop drafting after a token that the draft gave less than this (before sampling settings); 0 = off.",
        },
    )

    name: ClassVar[str] = "early_exit"
    paper: ClassVar[str] = "Elhoushi et al. 2024, LayerSkip; Zhang et al. 2024, Draft & Verify"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "chain"
    needs: ClassVar[str] = "target"
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> EarlyExit:
        return cls(model=target)

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        shallow = self.model.shallow(kept(self.model.config.num_hidden_layers, self.share, self.keep))
        self._draft = DraftModel(model=shallow, gamma=self.gamma, confidence=self.confidence)
        self._draft.begin(state)

    def propose(self, state) -> Draft:
        return self._draft.propose(state)

    def accept(self, state, verdict, scores) -> None:
        self._draft.accept(state, verdict, scores)


def kept(count: int, share: float, keep: str) -> list[int]:
    """Which of `count` layers draft: at least one, and fewer than all where there are two or more."""
    wanted = max(1, min(count - 1, round(count * share)))
    if keep == "first":
        return list(range(wanted))
    skipped = count - wanted
    # measured on SmolLM2-135M: ten of 30 layers skipped right behind the middle leave 25 % agreement, evenly spread ones 2 %
    start = min((count - skipped) // 2 + count // 15, wanted - 1)
    return [i for i in range(count) if not start <= i < start + skipped]
