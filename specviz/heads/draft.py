"""A small draft model cut out of its target: the target's embeddings (shared, frozen), some of its layers, its final norm,
and an output head trimmed to the tokens that the target uses most.

On disk: config.json (which layers, how it was trained, the command) and model.safetensors in float16 with `d2t` int64[Vd],
the target id of each draft id. The trimmed head is what makes it cheap: half of a small model's weights are its head.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

from specviz.heads import files
from specviz.session import ModelError, Target


def build(model: nn.Module, layers: Sequence[int], vocab: int) -> nn.Module:
    """An untrained draft with the structure of `model`, its embeddings, and as many layers as are named."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[i] for i in layers]
    config.tie_word_embeddings = False
    draft = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    draft.set_input_embeddings(model.get_input_embeddings())
    draft.set_output_embeddings(nn.Linear(config.hidden_size, vocab, bias=False))
    return draft


def untrained(target: Any) -> Any:
    """A random draft for any target, for tests: one layer of its structure, or a table where the target is one."""
    name = f"{target.name} untrained"
    if target.tokenizer is None:
        generator = torch.Generator().manual_seed(0)
        return dataclasses.replace(target, name=name, table=torch.randn(target.table.shape, dtype=torch.float64, generator=generator) * 1.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draft = build(target.model, [0], target.vocab)
        for key, parameter in draft.named_parameters():
            if key in own_state(draft) and parameter.dim() > 1:
                parameter.data.normal_(std=0.3)
    return Target(name, draft.to(device=target.device, dtype=target.embedding.dtype), target.tokenizer)


def copied(model: nn.Module, layers: Sequence[int], d2t: torch.Tensor) -> nn.Module:
    """A draft that starts from the target's own layers, norm and rows of the output head."""
    draft = build(model, layers, len(d2t))
    state = model.get_decoder().state_dict()
    for new, old in enumerate(layers):
        prefix = f"layers.{old}."
        draft.get_decoder().layers[new].load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
    draft.get_decoder().norm.load_state_dict({k.removeprefix("norm."): v for k, v in state.items() if k.startswith("norm.")})
    with torch.no_grad():
        draft.get_output_embeddings().weight.copy_(model.get_output_embeddings().weight[d2t])
    return draft


def own_state(draft: nn.Module) -> dict[str, torch.Tensor]:
    """All but the embeddings, which are the target's."""
    return {k: v for k, v in draft.state_dict().items() if "embed_tokens" not in k}


def save(draft: nn.Module, d2t: torch.Tensor, facts: dict, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().to(torch.float16).contiguous() for k, v in own_state(draft).items()}
    save_file({**tensors, "d2t": d2t.to(torch.int64)}, folder / "model.partial")
    (folder / "model.partial").rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(facts, indent=1) + "\n")


def load(folder: Path, target: Target) -> tuple[Target, torch.Tensor]:
    """(draft model, d2t). Raises ModelError that lists what does not fit, so that a half-loaded draft never runs."""
    draft, d2t = read(folder, target.model, target.name)
    embedding = target.model.get_input_embeddings().weight
    draft = draft.to(device=embedding.device, dtype=embedding.dtype)
    return Target(f"{target.name} draft", draft, target.tokenizer), d2t.to(embedding.device)


def read(folder: Path, model: nn.Module, name: str) -> tuple[nn.Module, torch.Tensor]:
    """(draft with stock modules, float32, d2t) for the target `model`, called `name`. Raises ModelError like load()."""
    facts, tensors = files.read(folder, f"the draft for {name}", "draft")
    d2t, vocab = tensors.pop("d2t", None), model.config.get_text_config().vocab_size
    if d2t is None or d2t.dtype != torch.int64 or d2t.ndim != 1 or bool(((d2t < 0) | (d2t >= vocab)).any()):
        raise ModelError(f"The draft for {name} has no usable map of its ids to the target's (d2t).")
    draft = build(model, facts["layers"], len(d2t))
    wanted = {k: tuple(v.shape) for k, v in own_state(draft).items()}
    found = {k: tuple(v.shape) for k, v in tensors.items()}
    wrong = [f"missing {k}" for k in sorted(wanted.keys() - found.keys())]
    wrong += [f"unexpected {k}" for k in sorted(found.keys() - wanted.keys())]
    wrong += [f"{k} is {found[k]}, not {wanted[k]}" for k in sorted(wanted.keys() & found.keys()) if wanted[k] != found[k]]
    if wrong:
        raise ModelError(f"The draft weights do not fit {name}: {'; '.join(wrong[:8])}.")
    draft.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    return draft, d2t
