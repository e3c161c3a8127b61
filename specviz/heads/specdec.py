"""The acceptance head of SpecDec++ (Huang et al. 2024): from the draft's last hidden state, will the target accept this token?

Residual blocks x + SiLU(W x), then one number; sigmoid of it is the chance that the token read by that state is accepted, given
that all before it were.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

from specviz.heads import files
from specviz.heads.medusa import Block


class Acceptance(nn.Module):
    kind = "specdec"

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.out = nn.Linear(width, 1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float[..., h] -> float[...]"""
        x = hidden
        for block in self.blocks:
            x = block(x)
        return self.out(x)[..., 0]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """float[n, h] -> float[n], P(accepted)"""
        return self.logits(hidden.to(self.out.weight.dtype)).sigmoid()

    @classmethod
    def from_files(cls, folder, target: Any, width: int) -> Self:
        """Raises ModelError where the weights are no acceptance head of a draft `width` wide."""
        what = f"the acceptance head for {target.name}"
        _, tensors = files.read(folder, what, cls.kind)
        blocks = len({key.split(".")[1] for key in tensors if key.startswith("blocks.")})
        head = cls(width, blocks)
        files.fill(head, tensors, what)
        return head.to(device=target.device).eval().requires_grad_(False)

    @classmethod
    def tiny(cls, width: int, seed: int = 0) -> Self:
        generator = torch.Generator().manual_seed(seed)
        head = cls(width, 1)
        for parameter in head.parameters():
            parameter.data.normal_(std=0.8, generator=generator)
        return head.eval().requires_grad_(False)
