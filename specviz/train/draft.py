"""Distil a draft model: at every answer position, KL to the draft's law from the target's, both over the draft's vocabulary
(after Zhou et al. 2023, DistillSpec).

The target's hidden states come from collect.py, so its law is one small matmul. What counts in the end is sum min(p, q),
the probability of acceptance, and at temperature 0 whether the two agree on the best token; both are reported on
conversations whose prompts were never trained on.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from tqdm import tqdm

from specviz.heads import draft as draft_head
from specviz.train.conversations import Conversation, by_length, held_out, read


@dataclass(frozen=True)
class Recipe:
    layers: tuple[int, ...] = (0, -1)  # of the target, negative from the end
    vocab: int = 8192  # rows of the trimmed head
    epochs: int = 3
    tokens: int = 4096  # padded tokens a batch
    lr: float = 1e-3
    warmup: int = 50  # steps
    weight_decay: float = 0.01
    clip: float = 1.0
    own_weight: float = 2.0  # of the target's own answers in the choice of the head's tokens
    seed: int = 0
    minutes: float = 0.0  # between checkpoints and reports; 0: five minutes


class Data:
    """Conversations with the target's hidden states, split by prompt."""

    def __init__(self, folder: Path, device: torch.device | str = "cpu"):
        self.device = device
        self.conversations = read(folder / "conversations.npz")
        self.starts = np.concatenate([[0], np.cumsum([len(c.ids) for c in self.conversations])])
        width = (folder / "hidden.f16").stat().st_size // 2 // int(self.starts[-1])
        self.hidden = np.memmap(folder / "hidden.f16", dtype=np.float16, mode="r", shape=(int(self.starts[-1]), width))
        out = [held_out(c) for c in self.conversations]
        self.train = [i for i, held in enumerate(out) if not held]
        self.test = [i for i, held in enumerate(out) if held]

    def batch(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """ids int64[B, L] (padded), where bool[B, L] (positions that predict an answer token), hidden float16[M, H] there."""
        chosen = [self.conversations[i] for i in indices]
        width = max(len(c.ids) for c in chosen)
        ids, where = torch.zeros(len(chosen), width, dtype=torch.long), torch.zeros(len(chosen), width, dtype=torch.bool)
        hidden = []
        for row, (index, c) in enumerate(zip(indices, chosen, strict=True)):
            ids[row, : len(c.ids)] = torch.from_numpy(c.ids)
            where[row, c.answer - 1 : len(c.ids) - 1] = True
            hidden.append(self.hidden[self.starts[index] + c.answer - 1 : self.starts[index] + len(c.ids) - 1])
        return ids.to(self.device), where.to(self.device), torch.from_numpy(np.concatenate(hidden)).to(self.device)


def frequent_tokens(conversations: Sequence[Conversation], own: int, weight: float, count: int, always: Sequence[int]) -> torch.Tensor:
    """int64[count], ascending: what answers use most. The first `own` conversations, the target's own answers, weigh more."""
    counts = np.zeros(1 + max(int(c.ids.max()) for c in conversations))
    for i, c in enumerate(conversations):
        np.add.at(counts, c.ids[c.answer :], weight if i < own else 1.0)
    counts[list(always)] = np.inf
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]))


@torch.no_grad()
def report(
    draft: nn.Module, head: torch.Tensor, d2t: torch.Tensor, data: Data, indices: Sequence[int], most: int = 60_000
) -> dict[str, float] | None:
    """On held-out answers: how often both sides agree on the best token, and the mean of sum min(p, q) at temperature 1.

    None where nothing is held out.
    """
    if not indices:
        return None
    draft.eval()
    agree = overlap = total = 0.0
    for batch in by_length([data.conversations[i] for i in indices], 4096, seed=1):
        ids, where, hidden = data.batch([indices[i] for i in batch])
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            logits = draft.get_output_embeddings()(draft.get_decoder()(ids).last_hidden_state[where])
            target = hidden.to(torch.bfloat16) @ head.T
        p, q = target.float().softmax(-1), logits.float().softmax(-1)
        agree += float((p.argmax(-1) == d2t[q.argmax(-1)]).sum())
        overlap += float(torch.minimum(p[:, d2t], q).sum())
        total += len(q)
        if total >= most:
            break
    draft.train()
    return {"agree": round(agree / total, 4), "overlap": round(overlap / total, 4), "tokens": int(total)}


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
) -> dict:
    """Trains on data.train, writes checkpoints into `out`/checkpoint.pt and the finished draft into `out`. Returns the facts.

    start: a draft of the same layers to go on from, its vocabulary included; None: the target's own layers.
    on_step: called after every batch, once its checkpoint is written where one was due; it may raise to stop.
    own: how many conversations at the front are the target's own answers. A run that was stopped goes on.
    """
    torch.manual_seed(recipe.seed)
    layers = [i % model.config.num_hidden_layers for i in recipe.layers]
    d2t = frequent_tokens(
        [data.conversations[i] for i in data.train], sum(i < own for i in data.train), recipe.own_weight, recipe.vocab, stop_ids
    )
    begun = load_file(start / "model.safetensors") if start else {}
    d2t = begun.pop("d2t", d2t).to(data.device)
    draft = draft_head.copied(model, layers, d2t).to(data.device).train()
    draft.load_state_dict({name: tensor.float() for name, tensor in begun.items()}, strict=False)
    draft.get_input_embeddings().weight.requires_grad_(False)
    head = model.get_output_embeddings().weight.detach().to(torch.bfloat16)
    trimmed = head[d2t].contiguous()
    parameters = [p for p in draft.parameters() if p.requires_grad]
    decayed, plain = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.95))
    train_set = [data.conversations[i] for i in data.train]
    work = [batch for epoch in range(recipe.epochs) for batch in by_length(train_set, recipe.tokens, recipe.seed + epoch)]
    own_test, other_test = [i for i in data.test if i < own], [i for i in data.test if i >= own]
    step, curve, seen, checkpoint = 0, [], 0, out / "checkpoint.pt"
    out.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["work"] != len(work):
            raise ValueError("The checkpoint in this folder belongs to another recipe or other data; choose another folder.")
        draft.load_state_dict(saved["draft"], strict=False)
        optimizer.load_state_dict(saved["optimizer"])
        step, curve, seen = saved["step"], saved["curve"], saved["seen"]

    def measure() -> None:
        curve.append(
            {
                "step": step,
                "answer_tokens": seen,
                "own": report(draft, head, d2t, data, own_test),
                "text": report(draft, head, d2t, data, other_test),
            }
        )
        tqdm.write(json.dumps(curve[-1]))
        state = {"draft": draft_head.own_state(draft), "optimizer": optimizer.state_dict()}
        state |= {"step": step, "curve": curve, "seen": seen, "work": len(work)}
        torch.save(state, out / "checkpoint.partial")
        (out / "checkpoint.partial").rename(checkpoint)

    last, bar = time.monotonic(), tqdm(total=len(work), initial=step, desc="draft", unit="batch", disable=None)
    for batch in work[step:]:
        for group in optimizer.param_groups:
            warm = min(1.0, (step + 1) / recipe.warmup)
            group["lr"] = recipe.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / len(work))))
        ids, where, hidden = data.batch([data.train[i] for i in batch])
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            logits = draft.get_output_embeddings()(draft.get_decoder()(ids).last_hidden_state[where])
            with torch.no_grad():
                p = (hidden.to(torch.bfloat16) @ trimmed.T).float().softmax(-1)
        loss = F.cross_entropy(logits.float(), p)  # the KL up to the target's own entropy, which has no gradient
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimizer.step()
        step, seen = step + 1, seen + len(p)
        bar.set_postfix(loss=f"{loss.item():.3f}", tokens=seen)
        bar.update()
        if time.monotonic() - last > 60 * (recipe.minutes or 5):
            measure()
            last = time.monotonic()
        on_step(step)
    measure()
    facts = {
        "kind": "draft",
        "layers": layers,
        "vocab": len(d2t),
        "parameters": sum(p.numel() for p in parameters),
        "recipe": asdict(recipe),
        "conversations": len(train_set),
        "answer_tokens": seen,
        "held_out": curve[-1],
        "curve": curve,
        "commands": list(commands),
    }
    draft_head.save(draft, d2t.cpu(), facts, out)
    return facts
