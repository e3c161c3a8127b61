"""Train a head that reads features: EAGLE-1, EAGLE-3, MTP. One Task, three recipes.

EAGLE-1 (Li et al. 2024): SmoothL1 to the target's next feature plus 0.1 of the cross-entropy to its law, with noise on what is
read. EAGLE-3 (Li et al. 2025), training-time test: the head is unrolled on its own output as when it drafts, each step
weighing 0.8 of the one before, tokens only. MTP (DeepSeek-V3): cross-entropy at each depth.

In step j a slot reads what step j - 1 wrote one slot to the left, and attends to the target's features up to j slots back
and, from there on, to the drafted slots of its own chain: exactly what it will see when it drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from specviz.heads import files
from specviz.heads.eagle import Eagle
from specviz.heads.eagle3 import Eagle3
from specviz.heads.mtp import Mtp
from specviz.heads.recurrent import Recurrent, config_like, facts_of
from specviz.train import loop
from specviz.train.data import Batch, Data, frequent_tokens


@dataclass(frozen=True)
class EagleRecipe(loop.Recipe):
    steps: int = 1  # how often the head is unrolled on its own output
    decay: float = 0.8  # weight of a step by that of the one before
    feature: float = 1.0  # weight of the SmoothL1 to the target's feature
    token: float = 0.1  # weight of the cross-entropy
    noise: float = 0.1  # uniform, added to the features that are read


@dataclass(frozen=True)
class Eagle3Recipe(loop.Recipe):
    steps: int = 3
    decay: float = 0.8
    feature: float = 0.0
    token: float = 1.0
    noise: float = 0.0


@dataclass(frozen=True)
class MtpRecipe(loop.Recipe):
    steps: int = 3
    decay: float = 0.6
    feature: float = 0.0
    token: float = 1.0
    noise: float = 0.0


class Unrolled:
    """Stands in for a cache: keys and values of all steps so far, end to end."""

    def __init__(self):
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def update(self, keys: torch.Tensor, values: torch.Tensor, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.append(keys)
        self.values.append(values)
        return torch.cat(self.keys, -2), torch.cat(self.values, -2)


def unrolled_mask(slots: int, step: int, device) -> torch.Tensor:
    """bool[slots, (step + 1) * slots]: what each slot sees of steps 0 … step."""
    at = torch.arange(slots, device=device)
    back = at[:, None] - at[None, :]
    # step s of the same chain stands step - s slots to the left
    return torch.cat([back >= step, *(back == step - s for s in range(1, step + 1))], 1)


def unroll(head: Recurrent, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    """tokens int64[B, L], features float[B, L, h] of the positions before them -> out float[B, L, h] of each step."""
    slots = tokens.shape[1]
    positions = torch.arange(slots, device=tokens.device).expand(len(tokens), -1)
    cache = Unrolled()
    for step in range(steps):
        seen = unrolled_mask(slots, step, tokens.device)
        seen[:step, 0] = True  # chains that would begin before the text see something, and are not counted
        mask = torch.zeros(seen.shape, dtype=features.dtype, device=tokens.device)
        mask.masked_fill_(~seen, torch.finfo(features.dtype).min)
        out = head(tokens, features, positions, mask[None, None], cache)
        yield out
        features = torch.cat([out[:, :1], out[:, :-1]], 1)


class RecurrentTask:
    def __init__(self, kind: str, head: Recurrent, output: torch.Tensor, recipe: Any, taps: Sequence[int], last: int):
        """output: float[V, H], the target's output head. taps: what the head reads. last: the tap that `output` reads."""
        self.kind, self.module, self.recipe, self.taps, self.last = kind, head, recipe, taps, last
        self.output = output.detach().to(torch.bfloat16)
        self.kept = self.output if head.d2t is None else self.output[head.d2t].contiguous()

    def _laws(self, batch: Batch, noise: float):
        """Yields per step: where bool[B, L - 1], out float[B, L - 1, h], and last the target's hidden states float[B, L - 1, H]."""
        hidden = {tap: batch.hidden[tap][:, :-1].float() for tap in self.taps}
        if noise:
            hidden = {tap: part + (torch.rand_like(part) - 0.5) * 2 * noise for tap, part in hidden.items()}
        where, last = batch.answer[:, 1:], batch.hidden[self.last][:, 1:]
        for step, out in enumerate(unroll(self.module, batch.ids[:, 1:], self.module.features(hidden), self.recipe.steps)):
            where = where.clone()
            where[:, :step] = False  # chains that would begin before the text
            yield where, out, last

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        total, weights, recipe = 0.0, 0.0, self.recipe
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            for step, (where, out, last) in enumerate(self._laws(batch, recipe.noise)):
                weight = recipe.decay**step
                chosen, truth = out[where], last[where]
                if recipe.token:
                    with torch.no_grad():
                        p = (truth.to(torch.bfloat16) @ self.kept.T).float().softmax(-1)
                    total = total + weight * recipe.token * loop.soft_loss(self.module.logits(chosen), p)
                if recipe.feature:
                    total = total + weight * recipe.feature * F.smooth_l1_loss(chosen.float(), truth.float())
                weights += weight
        return total / weights, int(batch.answer.sum())

    def measure(self, batch: Batch) -> dict[str, torch.Tensor]:
        parts = []
        with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
            for where, out, last in self._laws(batch, 0.0):
                p = (last[where].to(torch.bfloat16) @ self.output.T).float().softmax(-1)
                parts.append(loop.agreement(p, self.module.logits(out[where]), self.module.d2t))
        return loop.stacked(parts)

    def state(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(state)

    def write(self, facts: dict[str, Any], out: Path) -> None:
        files.write(out, self.module.own_state(), facts_of(self.module.config) | {"draft_vocab_size": len(self.kept)} | facts)


def train(
    kind: str,
    model: torch.nn.Module,
    data: Data,
    out: Path,
    recipe: Any,
    stop_ids: Sequence[int],
    own: int,
    commands: Sequence[str],
    start: Path | None = None,
    on_step=lambda step: None,
) -> dict[str, Any]:
    """kind: "eagle", "eagle3" or "mtp". start: an earlier head of the same kind to go on from, its vocabulary included."""
    head_class = {"eagle": Eagle, "eagle3": Eagle3, "mtp": Mtp}[kind]
    torch.manual_seed(recipe.seed)
    chosen = [data.conversations[i] for i in data.train]
    d2t = frequent_tokens(chosen, sum(i < own for i in data.train), recipe.own_weight, recipe.vocab, stop_ids) if recipe.vocab else None
    begun = {}
    if start:
        _, tensors = files.read(start, f"the {kind} head to go on from")
        begun = head_class.keys(tensors)
        d2t = files.target_ids(begun.pop("d2t", None), model.config.vocab_size, "the head to go on from")
        begun.pop("t2d", None)
    d2t = None if d2t is None else d2t.to(data.device)
    output = model.get_output_embeddings().weight.detach()
    head = new_head(head_class, model, d2t)
    if begun:
        files.fill(head, begun, f"the {kind} head to go on from")
    head.to(data.device).share(output)
    task = RecurrentTask(kind, head, output, recipe, head.taps(model.config), data.last)
    return loop.run(task, data, out, recipe, own, commands, on_step, start)


def new_head(head_class: type[Recurrent], model: torch.nn.Module, d2t: torch.Tensor | None) -> Recurrent:
    """Starts from the target's own last layer where norms make that possible, its own output head from the target's rows."""
    config, embedding = config_like(model.config), model.get_input_embeddings().weight.detach()
    more = {"layer": model.config.num_hidden_layers} if head_class is Mtp else {}
    head = head_class(config, embedding, d2t, **more)
    layer = model.get_decoder().layers[-1].state_dict()
    own, width = head.state_dict(), config.hidden_size
    for key, tensor in own.items():
        name = key.removeprefix("layers.0.").removeprefix("midlayer.")
        if head_class is Eagle and key.startswith("layers.0."):
            # without a norm before its attention, the target's layer would read features of a scale it never saw: start near x = f
            tensor.mul_(0.1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0)
        elif name in layer and layer[name].shape == tensor.shape:
            tensor.copy_(layer[name])
        elif name in layer and layer[name].shape[-1] * 2 == tensor.shape[-1]:  # reads embedding and feature side by side
            tensor.zero_()
            tensor[:, width:].copy_(layer[name])
        elif key in ("fc.weight", "eh_proj.weight"):
            tensor.mul_(0.1)
            tensor[:, -width:].add_(torch.eye(width, device=tensor.device))
        elif key == "lm_head.weight":
            rows = model.get_output_embeddings().weight.detach()
            tensor.copy_(rows if d2t is None else rows[d2t])
        elif key in ("norm.weight", "shared_head.norm.weight"):
            tensor.copy_(model.get_decoder().norm.weight)
    return head
