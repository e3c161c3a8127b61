"""Sampling: logits -> rows of probabilities, by the library's own processors in the library's own order.

Temperature 0 is a one-hot row, so "greedy" is nothing but a law with all its mass on one token: no rule, drafter or
view needs a second branch for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

COLDEST = 0.001  # smallest temperature above 0


@dataclass(frozen=True)
class Sampling:
    """The settings that turn logits into a law. Draft and target use the same object. ValueError for impossible values."""

    temperature: float = 0.0
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    min_p: float = 0.0  # 0 = off
    repetition_penalty: float = 1.0  # 1 = off
    seed: int = 0

    def __post_init__(self):
        for name, low, high in (("temperature", 0, 100), ("top_p", 0, 1), ("min_p", 0, 1), ("repetition_penalty", 0.01, 100)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:  # NaN is in no range
                raise ValueError(f"{name} must be a number from {low} to {high}, not {str(value)[:20]}.")
        if 0 < self.temperature < COLDEST:
            raise ValueError(f"temperature must be 0 or at least {COLDEST}; logits divided by less are beyond float32.")
        if self.top_p == 0:
            raise ValueError("top_p must be above 0; 1 switches it off.")
        for name, high in (("top_k", 10**6), ("seed", 2**53)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
                raise ValueError(f"{name} must be a whole number from 0 to {high}, not {str(value)[:20]}.")

    @property
    def reads_history(self) -> bool:
        return self.repetition_penalty != 1

    def processors(self) -> LogitsProcessorList:
        chosen = LogitsProcessorList()
        if self.repetition_penalty != 1:
            chosen.append(RepetitionPenaltyLogitsProcessor(float(self.repetition_penalty)))
        if self.temperature == 0:
            return chosen
        if self.temperature != 1:
            chosen.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k:
            chosen.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1:
            chosen.append(TopPLogitsWarper(self.top_p))
        if self.min_p:
            chosen.append(MinPLogitsWarper(self.min_p))
        return chosen

    def probs(self, logits: torch.Tensor, histories: Sequence[torch.Tensor]) -> torch.Tensor:
        """float[R, V] logits -> float32[R, V] laws (float64 stays float64, which is how the exact tests run).

        histories: int64[L_r] for each row, everything the row's token would follow: prefix and the path to its node.
        They are read only by settings that depend on them. Raises FloatingPointError naming the row where a row is not
        finite where it matters (NaN, +inf, or no token left).
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        top = logits.amax(-1)  # NaN and inf both survive a maximum
        if not bool(torch.isfinite(top).all()):
            raise FloatingPointError(f"row {int((~torch.isfinite(top)).nonzero()[0, 0])} of the logits has no finite maximum")
        if chosen := self.processors():
            logits = chosen(self._padded(histories).to(logits.device) if self.reads_history else None, logits)
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return logits.softmax(-1)

    @staticmethod
    def _padded(histories: Sequence[torch.Tensor]) -> torch.Tensor:
        """int64[R, L]. Repeating a token of the row changes nothing for a penalty that asks only whether a token occurred."""
        longest = max(len(history) for history in histories)
        return torch.stack([torch.cat([history[:1].expand(longest - len(history)), history]) for history in histories])
