"""Packed matmuls for the CPU: a block of a few rows should cost about what one row costs, since both read the same weights.

With the stock nn.Linear it does not, which alone would make every drafter lose. oneDNN's packed weights do it; torch
reaches them only by private operators, so all of that stays in this file, behind a check made once per weight layout.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 8  # the layout is chosen for about this many rows; measured within a few per cent from 1 to 64


class PackedLinear(nn.Module):
    """nn.Linear with weights in oneDNN's own layout; float32[..., in] -> float32[..., out]. Inference only."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), ROWS)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def agrees(linear: nn.Linear, packed: PackedLinear) -> bool:
    """Whether the packed module gives the stock result for one row and for several (float32 rounding aside)."""
    generator = torch.Generator().manual_seed(0)
    for rows in (1, 5):
        x = torch.randn(1, rows, linear.in_features, generator=generator)
        want = F.linear(x, linear.weight, linear.bias)
        if not torch.allclose(packed(x), want, rtol=1e-4, atol=1e-4 * float(want.abs().max())):
            return False
    return True


@torch.no_grad()
def pack(model: nn.Module) -> str:
    """Replaces every float32 nn.Linear of `model`; stock modules stay where the operators are missing or disagree."""
    checked: dict[tuple[int, int], bool] = {}
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child.weight.dtype != torch.float32:
                continue
            try:
                packed = PackedLinear(child)
                shape = (child.in_features, child.out_features)
                if shape not in checked:
                    checked[shape] = agrees(child, packed)
            except (RuntimeError, AttributeError, NotImplementedError):
                return "stock kernels (no packed matmul here)"
            if checked[shape]:
                setattr(parent, name, packed)
                count += 1
    return f"packed matmuls ({count})" if count else "stock kernels"
