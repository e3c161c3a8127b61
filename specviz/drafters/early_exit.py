"""Early exit: the target drafts for itself with some of its layers, its own final norm and its own head. No further weights.

LayerSkip (Elhoushi et al. 2024) leaves after the first layers, and trains the model for it; Draft & Verify (Zhang et al. 2024)
skips layers in between, of a model as it is. Each keeps a share of the layers, so a drafted token costs about that share of a
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
    share: float = field(default=0.5, metadata={"min": 0.05, "max": 0.95, "step": 0.05, "help": "Share of the target's layers that draft."})
    keep: str = field(
        default="spread",
        metadata={
            "choices": ["first", "spread"],
            "help": "first: leave after the first layers; spread: keep both ends and skip layers evenly in between.",
        },
    )
    gamma: int = field(default=3, metadata={"min": 1, "max": 32, "help": "Tokens drafted a round."})
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
    if keep == "first" or wanted == 1:
        return list(range(wanted))
    return [round(i * (count - 1) / (wanted - 1)) for i in range(wanted)]
