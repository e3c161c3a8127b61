"""The head of EAGLE-3 (Li et al. 2025): three layers of the target fused, tokens predicted directly, a vocabulary of its own.

g = fc[low; mid; high]; x = [norm(e); norm(g)]; a = g + attention(x); a = a + mlp(norm(a)); logits = lm_head(norm(a)). The next
step reads a in place of g. File layout: SafeAILab/EAGLE (`midlayer.`), also as `layers.0.`; d2t holds target id minus draft id.
"""

from __future__ import annotations

import torch
from torch import nn

from specviz.heads.recurrent import Recurrent, attention, mlp, norm


class MidLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = attention(config, 2 * config.hidden_size)
        self.mlp = mlp(config)
        self.hidden_norm, self.input_layernorm, self.post_attention_layernorm = norm(config), norm(config), norm(config)


class Eagle3(Recurrent):
    kind = "eagle3"
    prefixes = (("layers.0.", "midlayer."),)
    shared = ("embed_tokens.weight",)
    attention_at = "midlayer."

    def __init__(self, config, embedding, d2t=None, norm_before_residual: bool = False):
        super().__init__(config, embedding, d2t)
        self.norm_before_residual = norm_before_residual
        self.fc = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = MidLayer(config)
        self.norm = norm(config)
        self.lm_head = nn.Linear(config.hidden_size, len(embedding) if d2t is None else len(d2t), bias=False)

    @classmethod
    def options(cls, facts, tensors):
        return {"norm_before_residual": bool(facts.get("norm_before_residual", False))}

    @staticmethod
    def taps(config):
        """Inputs of layers 2, N // 2 and N - 3: low, middle, high; of a shallow model, where these coincide, first, middle and last."""
        layers = config.num_hidden_layers
        low, middle, high = 2, layers // 2, layers - 3
        return (low, middle, high) if low < middle < high else (0, layers // 2, layers)

    def features(self, hidden):
        return self.fc(torch.cat([hidden[tap] for tap in sorted(hidden)], -1).to(self.dtype))

    def block(self, embedded, features, rotary, mask, cache):
        layer = self.midlayer
        normed = layer.hidden_norm(features)
        x = torch.cat([layer.input_layernorm(embedded), normed], -1)
        residual = normed if self.norm_before_residual else features
        x = residual + layer.self_attn(x, position_embeddings=rotary, attention_mask=mask, cache=cache)[0]
        return x + layer.mlp(layer.post_attention_layernorm(x))

    def logits(self, out):
        return self.lm_head(self.norm(out))

    def share(self, rows):
        """Its output head is its own."""

    def own_state(self):
        state = super().own_state()
        if self.d2t is not None:
            state["d2t"] = state["d2t"].long()  # as published
            state["t2d"] = torch.zeros(len(self.embedding), dtype=torch.bool).index_fill_(0, self.d2t.cpu(), True)
        return state
