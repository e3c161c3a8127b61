"""For the CPU: a block of a few rows should cost about what one row costs, since both read the same weights and keys.

With the stock nn.Linear it does not, which alone would make every drafter lose. oneDNN's packed weights do it; torch
reaches them only by private operators, so all of that stays in this file, behind a check made once per weight layout.
Nor does the library's attention where several query heads share a key head: for one row it lets them share, for more it
copies the keys once a head. Folding the heads into rows lets them share for any number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FOLDED = "sdpa of folded heads"
FEW = 128  # rows of a pass over a draft; a mask copied for more of them is larger than the keys
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


def folded(module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, **how):
    """The library's attention; of few rows, with the query heads of one key head as rows of it where one mask serves all heads.

    query float[B, heads, T, d]; key, value float[B, key heads, L, d]; attention_mask float[B, 1, T, L] or None -> float[B, T, heads, d].
    """
    batch, heads, rows, width = query.shape
    groups = heads // key.shape[1]
    if groups == 1 or rows > FEW or attention_mask is None or attention_mask.shape[1] != 1 or how.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **how)
    query = query.reshape(batch, key.shape[1], groups * rows, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    out = F.scaled_dot_product_attention(query, key, value, mask, how.get("dropout", 0.0), scale=how.get("scaling"))
    return out.reshape(batch, heads, rows, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(FOLDED, folded)
AttentionMaskInterface.register(FOLDED, sdpa_mask)  # else a call without a mask would get none at all


def fold(model: nn.Module) -> str:
    """Folds the heads of a model of the library, or of a module around its layers, that uses its SDPA attention and shares keys."""
    config = getattr(model, "config", None)
    if getattr(config, "_attn_implementation", "") != "sdpa":
        return ""
    text = config.get_text_config()
    if getattr(text, "num_key_value_heads", text.num_attention_heads) == text.num_attention_heads:
        return ""
    if isinstance(model, PreTrainedModel):
        model.set_attn_implementation(FOLDED)
    else:
        config._attn_implementation = FOLDED
    return "folded heads"


def prepare(model: nn.Module) -> str:
    return ", ".join(filter(None, (pack(model), fold(model))))
