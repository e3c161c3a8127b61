"""The one training loop: every head is a Task, and this is all that happens to it.

Deterministic by seed, stopped at any moment and gone on with, measured on conversations whose prompts were never trained
on, and written as config.json (recipe, commands, curve) beside model.safetensors in float16.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from tqdm import tqdm

from specviz.heads import files
from specviz.train.conversations import by_length
from specviz.train.data import Batch, Data


@dataclass(frozen=True)
class Recipe:
    vocab: int = 8192  # rows of the trimmed output head; 0: all
    epochs: int = 3
    tokens: int = 2048  # padded tokens a batch
    lr: float = 1e-3
    warmup: int = 50  # steps
    weight_decay: float = 0.01
    clip: float = 1.0
    own_weight: float = 2.0  # of the target's own answers in the choice of the head's tokens
    own_only: bool = False  # train on the target's own answers alone: what a draft will meet, but fewer of them
    seed: int = 0
    minutes: float = 0.0  # between checkpoints and reports; 0: five minutes
    limit: float = 0.0  # minutes of training in all, the learning rate ending there; 0: as many epochs as are asked for


class Task(Protocol):
    """kind: the word in config.json. module: what is trained, its parameters and its checkpoint."""

    kind: str
    module: nn.Module

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]: ...  # (mean loss, answer tokens seen)
    def measure(self, batch: Batch) -> dict[str, torch.Tensor]: ...  # sums over answer positions, float[D] by depth, and "count"
    def state(self) -> dict[str, torch.Tensor]: ...  # what a checkpoint and the finished file hold
    def resume(self, state: dict[str, torch.Tensor]) -> None: ...
    def write(self, facts: dict[str, Any], out: Path) -> None: ...


@torch.no_grad()
def report(task: Task, data: Data, indices: Sequence[int], most: int = 30_000) -> dict[str, Any] | None:
    """On held-out answers, by depth of the draft, each given that all before were right: greedy agreement and the mean of
    sum min(p, q) at temperature 1. None where nothing is held out."""
    if not indices:
        return None
    task.module.eval()
    sums: dict[str, torch.Tensor] = {}
    for batch in by_length([data.conversations[i] for i in indices], 4096, seed=1):
        for name, value in task.measure(data.batch([indices[i] for i in batch])).items():
            sums[name] = sums.get(name, 0) + value.double().cpu()
        if float(sums["count"].max()) >= most:
            break
    task.module.train()
    count = sums.pop("count")
    by_depth = {name: [round(float(x), 4) for x in value / count.clamp(min=1)] for name, value in sums.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in by_depth.items()} | {"tokens": int(count.max())}


def run(
    task: Task,
    data: Data,
    out: Path,
    recipe: Recipe,
    own: int,
    commands: Sequence[str],
    on_step: Callable[[int], None] = lambda step: None,
    start: Path | None = None,
) -> dict[str, Any]:
    """Trains on data.train, writes `out`/checkpoint.pt and the finished head into `out`. Returns the facts.

    own: how many conversations at the front are the target's own answers. on_step: called after every batch, once its
    checkpoint is written where one was due; it may raise to stop. A run that was stopped goes on. start: the folder of the weights
    that the task began from; the answer tokens that they had seen are counted in the facts.
    Raises ValueError where `out` holds the checkpoint of another recipe or of other data.
    """
    torch.manual_seed(recipe.seed)
    task.module.train()
    parameters = [p for p in task.module.parameters() if p.requires_grad]
    decayed, plain = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.95))
    train = [i for i in data.train if i < own or not recipe.own_only]
    if not train:
        raise ValueError("None of these conversations are the target's own answers; collect some, or train without own-only.")
    train_set = [data.conversations[i] for i in train]
    work = [batch for epoch in range(recipe.epochs) for batch in by_length(train_set, recipe.tokens, recipe.seed + epoch)]
    own_test, other_test = [i for i in data.test if i < own], [i for i in data.test if i >= own]
    step, curve, seen, spent, checkpoint = 0, [], 0, 0.0, out / "checkpoint.pt"
    out.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["work"] != len(work):
            raise ValueError("The checkpoint in this folder belongs to another recipe or other data; choose another folder.")
        task.resume(saved["state"])
        optimizer.load_state_dict(saved["optimizer"])
        step, curve, seen, spent = saved["step"], saved["curve"], saved["seen"], saved["spent"]

    def measure() -> None:
        curve.append({"step": step, "answer_tokens": seen, "own": report(task, data, own_test), "text": report(task, data, other_test)})
        tqdm.write(json.dumps(curve[-1]))
        state = {"state": task.state(), "optimizer": optimizer.state_dict(), "step": step, "curve": curve, "seen": seen}
        torch.save(state | {"spent": spent, "work": len(work)}, out / "checkpoint.partial")
        (out / "checkpoint.partial").rename(checkpoint)

    last = before = time.monotonic()
    with tqdm(total=len(work), initial=step, desc=task.kind, unit="batch", disable=None) as bar:
        for batch in work[step:]:
            # a time limit bends the learning rate down to its end in time, which only a recipe with one gives up repeatability for
            part = step / len(work) if not recipe.limit else max(step / len(work), spent / (60 * recipe.limit))
            if part >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr * min(1.0, (step + 1) / recipe.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * part)))
            loss, count = task.loss(data.batch([train[i] for i in batch]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
            optimizer.step()
            step, seen = step + 1, seen + count
            now = time.monotonic()
            spent, before = spent + now - before, now
            bar.set_postfix(loss=f"{loss.item():.3f}", tokens=seen)
            bar.update()
            if now - last > 60 * (recipe.minutes or 5):
                measure()
                last = before = time.monotonic()
            on_step(step)
    measure()
    facts = {
        "kind": task.kind,
        "parameters": sum(p.numel() for p in parameters),
        "recipe": asdict(recipe),
        "conversations": len(train_set),
        "answer_tokens": seen + (files.read(start, "the weights to go on from")[0].get("answer_tokens", 0) if start else 0),
        "held_out": curve[-1],
        "curve": curve,
        "commands": list(commands),
    }
    task.write(facts, out)
    return facts


def soft_loss(logits: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Cross-entropy to the target's law: the KL divergence up to that law's own entropy, which has no gradient."""
    return nn.functional.cross_entropy(logits.float(), p)


def agreement(p: torch.Tensor, logits: torch.Tensor, d2t: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Sums over rows: p float[M, V] the target's full law, logits float[M, Vd] of the draft."""
    q = logits.float().softmax(-1)
    best, inside = q.argmax(-1), p
    if d2t is not None:
        best, inside = d2t[best], p[:, d2t]
    same = (p.argmax(-1) == best).sum()
    return {"agree": same, "overlap": torch.minimum(inside, q).sum(), "count": torch.tensor(float(len(q)), device=q.device)}


def stacked(parts: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One dictionary of sums a depth -> one dictionary of float[D]."""
    return {name: torch.stack([part[name].double() for part in parts]) for name in parts[0]}
