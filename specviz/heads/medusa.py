"""Medusa heads (Cai et al. 2024): each reads the target's last hidden state alone and predicts one later token.

Head k, counted from 0: h' = h + SiLU(W h), once a block, then an output head; it predicts the token k + 2 positions on. Layouts
of FasterDecoding/Medusa: `{k}.{j}.linear.{weight, bias}` with an own output head `{k}.{L}.weight` (version 1), or with the
target's (version 2); prefix `medusa_head.`. How many heads and blocks there are is read from the keys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import nn

from specviz import backend
from specviz.heads import files
from specviz.session import ModelError

PREFIXES = (("medusa_head.", ""), ("medusa_heads.", ""))


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.silu(self.linear(x))


class Medusa(nn.Module):
    """heads × blocks of residual layers; rows float[Vd, H] is the shared output head, or None where each head has its own."""

    def __init__(self, width: int, heads: int, blocks: int, d2t: torch.Tensor | None = None, own: Sequence[int] | None = None):
        super().__init__()
        self.width, self.d2t = width, d2t
        self.heads = nn.ModuleList([nn.ModuleList([Block(width) for _ in range(blocks)]) for _ in range(heads)])
        if own is not None:
            for head in self.heads:
                head.append(nn.Linear(width, own[0], bias=False))
        self.blocks, self.own = blocks, own is not None
        self.output: nn.Linear | None = None
        self.dtype = torch.float32

    @staticmethod
    def taps(config: Any) -> tuple[int, ...]:
        return (config.num_hidden_layers,)

    def states(self, hidden: torch.Tensor) -> torch.Tensor:
        """float[n, H] -> float[n, K, H]: what the output head reads."""
        found = []
        for head in self.heads:
            x = hidden
            for block in list(head)[: self.blocks]:
                x = block(x)
            found.append(x)
        return torch.stack(found, -2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """float[n, H] -> float[n, K, Vd]"""
        states = self.states(hidden.to(self.dtype))
        if not self.own:
            return self.output(states)
        return torch.stack([head[-1](states[:, k]) for k, head in enumerate(self.heads)], -2)

    def share(self, rows: torch.Tensor) -> None:
        """Uses the target's output head, float[V, H], or those of its rows that d2t names."""
        if self.own:
            return
        chosen = rows if self.d2t is None else rows[self.d2t.to(rows.device)]
        output = nn.Linear(chosen.shape[1], chosen.shape[0], bias=False, device="meta")
        output.weight = nn.Parameter(chosen.detach(), requires_grad=False)
        object.__setattr__(self, "output", output)  # never saved, never trained

    def ready(self, device: str, dtype: torch.dtype) -> Self:
        self.to(device=device, dtype=dtype).eval().requires_grad_(False)
        self.dtype = dtype
        self.d2t = None if self.d2t is None else self.d2t.to(device)
        if self.output is not None:
            holder = nn.Sequential(self.output).to(device=device, dtype=dtype)
            backend.prepare(holder, device)
            object.__setattr__(self, "output", holder[0])
        backend.prepare(self, device)
        return self

    def own_state(self) -> dict[str, torch.Tensor]:
        state = {key.removeprefix("heads."): tensor for key, tensor in self.state_dict().items()}
        if self.d2t is not None:
            state["d2t"] = files.offsets_of(self.d2t)
        return state

    @classmethod
    def from_files(cls, folder, target) -> Self:
        """Raises ModelError where the weights are no Medusa heads, or do not fit the target."""
        what = f"the medusa heads for {target.name}"
        _, tensors = files.read(folder, what, "medusa")
        tensors = files.renamed(tensors, PREFIXES)
        d2t = files.target_ids(tensors.pop("d2t", None), target.vocab, what)
        found = [re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(linear\.weight|linear\.bias|weight)", key) for key in tensors]
        if not tensors or not all(found):
            raise ModelError(f"The weights of {what} are not Medusa heads; choose another folder.")
        heads = 1 + max(int(m[1]) for m in found)
        blocks = 1 + max((int(m[2]) for m in found if m[3] != "weight"), default=-1)
        own = tensors.get(f"0.{blocks}.weight")
        width = target.embedding.shape[1]
        module = cls(width, heads, blocks, d2t, None if own is None else tuple(own.shape[:1]))
        files.fill(module, {f"heads.{key}": tensor for key, tensor in tensors.items()}, what)
        module.share(target.head)
        return module.ready(target.device, target.embedding.dtype)

    @classmethod
    def tiny(cls, target: Any, heads: int = 3, d2t: torch.Tensor | None = None, seed: int = 0) -> Self:
        """Random heads of the target's width, for tests."""
        generator = torch.Generator().manual_seed(seed)
        module = cls(target.embedding.shape[1], heads, 1, d2t)
        for parameter in module.parameters():
            parameter.data.normal_(std=0.6, generator=generator)
        module.share(target.head.to(torch.float32))
        return module.ready(target.device, torch.float32)
