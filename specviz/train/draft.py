"""Distil a draft model: at every answer position, KL to the draft's law from the target's, both over the draft's vocabulary
(after Zhou et al. 2023, DistillSpec).

The target's hidden states come from collect.py, so its law is one small matmul. What counts in the end is sum min(p, q),
the probability of acceptance, and at temperature 0 whether the two agree on the best token; both are reported on
conversations whose prompts were never trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from specviz.heads import draft as draft_head
from specviz.train import loop
from specviz.train.data import Batch, Data, frequent_tokens


@dataclass(frozen=True)
class Recipe(loop.Recipe):
    layers: tuple[int, ...] = (0, -1)  # of the target, negative from the end
    tokens: int = 4096


class DraftTask:
    kind = "draft"

    def __init__(self, draft: nn.Module, d2t: torch.Tensor, output: torch.Tensor, last: int, layers: Sequence[int]):
        """output: float[V, H], the target's output head, which reads the tap `last`."""
        self.module, self.d2t, self.last, self.layers = draft, d2t, last, list(layers)
        self.output = output.detach().to(torch.bfloat16)
        self.kept = self.output[d2t].contiguous()

    def _logits(self, batch: Batch) -> torch.Tensor:
        """float[M, Vd] at the positions that predict an answer token"""
        return self.module.get_output_embeddings()(self.module.get_decoder()(batch.ids).last_hidden_state[batch.answer])

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            logits = self._logits(batch)
            with torch.no_grad():
                p = (batch.hidden[self.last][batch.answer].to(torch.bfloat16) @ self.kept.T).float().softmax(-1)
        return loop.soft_loss(logits, p), len(p)

    def measure(self, batch: Batch) -> dict[str, torch.Tensor]:
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            p = (batch.hidden[self.last][batch.answer].to(torch.bfloat16) @ self.output.T).float().softmax(-1)
            return loop.stacked([loop.agreement(p, self._logits(batch), self.d2t)])

    def state(self) -> dict[str, torch.Tensor]:
        return draft_head.own_state(self.module)

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(state, strict=False)

    def write(self, facts: dict[str, Any], out: Path) -> None:
        draft_head.save(self.module, self.d2t.cpu(), {"layers": self.layers, "vocab": len(self.d2t)} | facts, out)


def train(
    model: nn.Module,
    data: Data,
    out: Path,
    recipe: Recipe,
    stop_ids: Sequence[int],
    own: int,
    commands: Sequence[str],
    start: Path | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """start: a draft of the same layers to go on from, its vocabulary included; None: the target's own layers."""
    torch.manual_seed(recipe.seed)
    layers = [i % model.config.num_hidden_layers for i in recipe.layers]
    chosen = [data.conversations[i] for i in data.train]
    d2t = frequent_tokens(chosen, sum(i < own for i in data.train), recipe.own_weight, recipe.vocab, stop_ids)
    begun = load_file(start / "model.safetensors") if start else {}
    d2t = begun.pop("d2t", d2t).to(data.device)
    draft = draft_head.copied(model, layers, d2t).to(data.device)
    draft.load_state_dict({name: tensor.float() for name, tensor in begun.items()}, strict=False)
    draft.get_input_embeddings().weight.requires_grad_(False)
    task = DraftTask(draft, d2t, model.get_output_embeddings().weight, data.last, layers)
    return loop.run(task, data, out, recipe, own, commands, on_step, start)
