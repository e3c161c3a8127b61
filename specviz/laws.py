"""The target's laws after the root and each drafted node, made where somebody asks for one.

Of a tree's many rows the rule looks at those along one path. Some settings sort the whole vocabulary for each row, which
would cost more than the target pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from specviz.sampling import Sampling
from specviz.tree import Draft


@dataclass(frozen=True)
class Laws:
    """laws[0]: float32[V] after the root, laws[i + 1]: after node i. Raises FloatingPointError where a row is not finite."""

    sampling: Sampling
    draft: Draft
    logits: torch.Tensor  # float[N + 1, V]
    ids: torch.Tensor | None  # int64[L] committed, the root last; None where the settings do not read it
    _made: dict[int, torch.Tensor] = field(default_factory=dict)

    def __getitem__(self, row: int) -> torch.Tensor:
        if row not in self._made:
            history = [] if self.ids is None else [self.draft.history(row, self.ids)]
            try:
                self._made[row] = self.sampling.probs(self.logits[row : row + 1], history)[0]
            except FloatingPointError:
                raise FloatingPointError(f"row {row} of the logits has no finite maximum") from None
        return self._made[row]
