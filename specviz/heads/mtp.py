"""A multi-token-prediction module (DeepSeek-V3 2024): norms of embedding and hidden state, a projection, one block, the shared head.

h' = block(eh_proj[norm(e); norm(h)]); out = norm(h'); logits = head(out). One module applied over and over (out stands in for h),
as servers do with published single modules. Keys: model.layers.<N>.{enorm, hnorm, eh_proj, shared_head.norm, self_attn, mlp, ...}.
"""

from __future__ import annotations

import re

import torch
from torch import nn

from specviz.heads.recurrent import Recurrent, attention, mlp, norm


class SharedHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = norm(config)


class Mtp(Recurrent):
    kind = "mtp"
    shared = ("embed_tokens.weight", "shared_head.head.weight")
    attention_at = ""

    @classmethod
    def keys(cls, tensors):
        return {re.sub(r"^(model\.)?layers\.\d+\.", "", key): tensor for key, tensor in tensors.items()}

    def own_state(self):
        return {f"model.layers.{self.layer}.{key}" if key != "d2t" else key: tensor for key, tensor in super().own_state().items()}

    def __init__(self, config, embedding, d2t=None, layer: int = 0):
        """layer: the number its keys carry, which is the target's number of layers."""
        super().__init__(config, embedding, d2t)
        self.layer = layer
        self.enorm, self.hnorm = norm(config), norm(config)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.input_layernorm, self.post_attention_layernorm = norm(config), norm(config)
        self.self_attn = attention(config, config.hidden_size)
        self.mlp = mlp(config)
        self.shared_head = SharedHead(config)

    def block(self, embedded, features, rotary, mask, cache):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(features)], -1))
        x = x + self.self_attn(self.input_layernorm(x), position_embeddings=rotary, attention_mask=mask, cache=cache)[0]
        x = x + self.mlp(self.post_attention_layernorm(x))
        return self.shared_head.norm(x)
