"""The head of EAGLE-1 and EAGLE-2 (Li et al. 2024): predicts the target's next feature, which the target's own head reads.

x = fc[e; f]; x = x + attention(x), without a norm before it; x = x + mlp(norm(x)). x is the next feature and the input of
the target's output head. File layout: SafeAILab/EAGLE, plus an optional `d2t` where only the commonest tokens are drafted.
"""

from __future__ import annotations

import torch
from torch import nn

from specviz.heads.recurrent import Recurrent, attention, mlp, norm


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = attention(config, config.hidden_size)
        self.mlp = mlp(config)
        self.post_attention_layernorm = norm(config)


class Eagle(Recurrent):
    kind = "eagle"
    shared = ("embed_tokens.weight", "lm_head.weight")

    def __init__(self, config, embedding, d2t=None, bias: bool = False):
        super().__init__(config, embedding, d2t)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=bias)
        self.layers = nn.ModuleList([Layer(config)])

    @classmethod
    def options(cls, facts, tensors):
        return {"bias": "fc.bias" in tensors}

    def block(self, embedded, features, rotary, mask, cache):
        layer = self.layers[0]
        x = self.fc(torch.cat([embedded, features], -1))
        x = x + layer.self_attn(x, position_embeddings=rotary, attention_mask=mask, cache=cache)[0]
        return x + layer.mlp(layer.post_attention_layernorm(x))
