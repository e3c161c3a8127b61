"""Train a small language model from nothing, with or without multi-token prediction in its loss, from one recipe.

With it (DeepSeek-V3 2024): loss = cross-entropy + weight * mean over depths of the MTP module's cross-entropy, gradients
flowing into the trunk. Without it, the same trunk can be given heads afterwards (`train medusa`), on features it was never
asked to prepare. Running both as targets measures what "trained in" is worth.

The tokenizer is the source's, cut to its first `vocab` tokens: a byte-level BPE numbers its tokens in the order of its merges,
so the first ones are a tokenizer too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

from specviz.heads import files
from specviz.heads.mtp import Mtp
from specviz.heads.recurrent import config_like, facts_of
from specviz.train import loop
from specviz.train.conversations import Conversation
from specviz.train.data import Batch, Text
from specviz.train.recurrent import unroll


@dataclass(frozen=True)
class ScratchRecipe(loop.Recipe):
    vocab: int = 4096  # tokens of the tokenizer
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 704
    context: int = 1024
    mtp: float = 0.0  # weight of the MTP loss; 0: without
    steps: int = 3  # depth to which the module is trained, applied to its own output
    epochs: int = 1
    tokens: int = 4096
    lr: float = 3e-3
    weight_decay: float = 0.1


def small_tokenizer(source: Path, size: int, out: Path) -> Any:
    """Writes the first `size` tokens of the byte-level BPE in `source` as a tokenizer of its own; returns it loaded.

    Raises ValueError where the ids do not follow the merges.
    """
    out.mkdir(parents=True, exist_ok=True)
    whole = json.loads((source / "tokenizer.json").read_text("utf-8"))
    vocab = {piece: index for piece, index in whole["model"]["vocab"].items() if index < size}
    merges = [m if isinstance(m, list) else m.split(" ") for m in whole["model"]["merges"]]
    kept = [pair for pair in merges if all(piece in vocab for piece in (*pair, "".join(pair)))]
    if len(kept) != sum(vocab.get("".join(pair), size) < size for pair in merges):
        raise ValueError("The tokens of this tokenizer are not numbered in the order of its merges, so it cannot be cut.")
    whole["model"] |= {"vocab": vocab, "merges": kept}
    whole["added_tokens"] = [one for one in whole["added_tokens"] if one["id"] < size]
    (out / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False), "utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        if (source / name).is_file():
            shutil.copy(source / name, out / name)
    return AutoTokenizer.from_pretrained(out, local_files_only=True)


def retold(conversations: Sequence[Conversation], old: Any, new: Any, longest: int) -> list[Conversation]:
    """The same text in another tokenizer's ids. Prompt and answer are encoded apart, as they are when it is used."""
    prompts = new([old.decode(c.ids[: c.answer]) for c in conversations], add_special_tokens=False)["input_ids"]
    answers = new([old.decode(c.ids[c.answer :]) for c in conversations], add_special_tokens=False)["input_ids"]
    told = [Conversation(np.array([*p, *a][:longest], dtype=np.int64), len(p)) for p, a in zip(prompts, answers, strict=True)]
    return [c for c in told if 0 < c.answer < len(c.ids)]


def new_model(recipe: ScratchRecipe, stop_id: int) -> nn.Module:
    config = LlamaConfig(
        vocab_size=recipe.vocab,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=stop_id,
        pad_token_id=stop_id,
        initializer_range=recipe.hidden**-0.5 / 2,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


class ScratchTask:
    kind = "scratch"

    def __init__(self, recipe: ScratchRecipe, stop_id: int, tokenizer: Any, head_out: Path | None):
        """head_out: the folder of the MTP module; None where the recipe has none."""
        torch.manual_seed(recipe.seed)  # the trunk starts from the same weights with and without
        self.recipe, self.tokenizer, self.head_out = recipe, tokenizer, head_out
        self.module = nn.ModuleDict({"trunk": new_model(recipe, stop_id)})
        self.weight = self.trunk.get_input_embeddings().weight  # tied: embedding and output head of all
        if recipe.mtp:
            config = config_like(self.trunk.config)
            self.module["mtp"] = Mtp(config, self.weight, layer=recipe.layers)

    @property
    def trunk(self) -> nn.Module:
        return self.module["trunk"]

    def _losses(self, batch: Batch) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Mean cross-entropy of the next token and of each depth after it, where there is text; and the trunk's logits."""
        ids = batch.ids
        real = ids.flip(1).cumsum(1).flip(1) > 0  # until the padding, whose id is 0
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            hidden = self.trunk.get_decoder()(ids).last_hidden_state
            where = real[:, 1:]
            logits = linear(hidden[:, :-1][where], self.weight)
            losses = [cross_entropy(logits.float(), ids[:, 1:][where])]
            if self.recipe.mtp:
                for step, out in enumerate(unroll(self.module["mtp"], ids[:, 1:-1], hidden[:, :-2], self.recipe.steps)):
                    where = real[:, 2:].clone()
                    where[:, :step] = False
                    losses.append(cross_entropy(linear(out[where], self.weight).float(), ids[:, 2:][where]))
        return losses, logits

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        losses, _ = self._losses(batch)
        extra = self.recipe.mtp * torch.stack(losses[1:]).mean() if self.recipe.mtp else 0.0
        return losses[0] + extra, int((batch.ids > 0).sum())

    def measure(self, batch: Batch) -> dict[str, torch.Tensor]:
        losses, logits = self._losses(batch)
        count = len(logits)
        return {"loss": torch.stack(losses) * count, "count": torch.full((len(losses),), float(count))}

    def state(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(state)

    def write(self, facts: dict[str, Any], out: Path) -> None:
        self.trunk.half().save_pretrained(out)
        GenerationConfig(eos_token_id=self.trunk.config.eos_token_id, pad_token_id=self.trunk.config.pad_token_id).save_pretrained(out)
        self.tokenizer.save_pretrained(out)
        (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n")
        if self.recipe.mtp:
            head = self.module["mtp"]
            facts = facts | {"kind": "mtp", "parameters": sum(p.numel() for p in head.parameters())}
            files.write(self.head_out, head.own_state(), facts_of(head.config) | facts)


def train(
    conversations: Sequence[Conversation],
    source: Path,
    out: Path,
    recipe: ScratchRecipe,
    own: int,
    commands: Sequence[str],
    head_out: Path | None = None,
    device: str = "cpu",
    on_step=lambda step: None,
) -> dict[str, Any]:
    """conversations: in ids of the tokenizer in `source`, a folder. out: the model's folder; head_out: its MTP module's."""
    tokenizer = small_tokenizer(source, recipe.vocab, out)
    old = AutoTokenizer.from_pretrained(source, local_files_only=True)
    data = Text(retold(conversations, old, tokenizer, recipe.context), device)
    task = ScratchTask(recipe, tokenizer.eos_token_id, tokenizer, head_out)
    task.module.to(device)
    return loop.run(task, data, out, recipe, own, commands, on_step)
