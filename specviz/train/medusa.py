"""Train Medusa heads on a frozen target (Cai et al. 2024, Medusa-1): head k learns the law of the token k + 2 positions on.

The loss is the cross-entropy to the target's own law there, weighing 0.8 ** k, which is the paper's self-distillation; the
hidden states come from collect, so the target is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specviz.heads import files
from specviz.heads.medusa import Medusa
from specviz.train import loop
from specviz.train.data import Batch, Data, frequent_tokens


@dataclass(frozen=True)
class MedusaRecipe(loop.Recipe):
    heads: int = 4
    blocks: int = 1
    decay: float = 0.8  # weight of a head by that of the one before


class MedusaTask:
    kind = "medusa"

    def __init__(self, heads: Medusa, output: torch.Tensor, recipe: MedusaRecipe, last: int):
        """output: float[V, H], the target's output head, which reads the tap `last`."""
        self.module, self.recipe, self.last = heads, recipe, last
        self.output = output.detach().to(torch.bfloat16)
        self.kept = self.output if heads.d2t is None else self.output[heads.d2t].contiguous()

    def _heads(self, batch: Batch):
        """Yields per head: its logits float[M, Vd], and the hidden states float[M, H] whose law it should give."""
        hidden = batch.hidden[self.last]
        for k, head in enumerate(self.module.heads):
            where = batch.answer[:, 1 + k :]  # the target itself predicts this answer token from there
            x = hidden[:, : -1 - k][where].float()
            for block in head:
                x = block(x)
            yield self.module.output(x), hidden[:, 1 + k :][where]

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        total, weights = 0.0, 0.0
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            for k, (logits, truth) in enumerate(self._heads(batch)):
                with torch.no_grad():
                    p = (truth.to(torch.bfloat16) @ self.kept.T).float().softmax(-1)
                total = total + self.recipe.decay**k * loop.soft_loss(logits, p)
                weights += self.recipe.decay**k
        return total / weights, int(batch.answer.sum())

    def measure(self, batch: Batch) -> dict[str, torch.Tensor]:
        parts = []
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            for logits, truth in self._heads(batch):
                p = (truth.to(torch.bfloat16) @ self.output.T).float().softmax(-1)
                parts.append(loop.agreement(p, logits, self.module.d2t))
        return loop.stacked(parts)

    def state(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(state)

    def write(self, facts: dict[str, Any], out: Path) -> None:
        shape = {"medusa_num_heads": len(self.module.heads), "medusa_num_layers": self.module.blocks, "version": "2"}
        files.write(out, self.module.own_state(), shape | {"draft_vocab_size": len(self.kept)} | facts)


def train(
    model: torch.nn.Module,
    data: Data,
    out: Path,
    recipe: MedusaRecipe,
    stop_ids: Sequence[int],
    own: int,
    commands: Sequence[str],
    on_step: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """New heads start as the identity, so head k first guesses what the target said k + 1 tokens ago."""
    chosen = [data.conversations[i] for i in data.train]
    d2t = frequent_tokens(chosen, sum(i < own for i in data.train), recipe.own_weight, recipe.vocab, stop_ids) if recipe.vocab else None
    output = model.get_output_embeddings().weight.detach()
    torch.manual_seed(recipe.seed)
    heads = Medusa(model.config.hidden_size, recipe.heads, recipe.blocks, None if d2t is None else d2t.to(data.device))
    for head in heads.heads:
        for block in head:
            torch.nn.init.zeros_(block.linear.weight)
    heads.to(data.device).share(output)
    return loop.run(MedusaTask(heads, output, recipe, data.last), data, out, recipe, own, commands, on_step)
