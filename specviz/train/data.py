"""What a trainer reads: conversations with the target's hidden states, split by prompt, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from specviz.train.conversations import Conversation, held_out, read


@dataclass(frozen=True)
class Batch:
    ids: torch.Tensor  # int64[B, L], padded with 0
    answer: torch.Tensor  # bool[B, L], positions that predict an answer token
    hidden: dict[int, torch.Tensor]  # tap -> float16[B, L, H]; 0 where padded


class Data:
    """The folder that collect wrote. taps: which hidden states batches carry beside the last ones (files tap-<i>.f16).

    Raises ValueError where the folder lacks them.
    """

    def __init__(self, folder: Path, device: torch.device | str = "cpu", taps: Sequence[int] = (), last: int = -1):
        self.device = device
        self._split(read(folder / "conversations.npz"))
        total = int(self.starts[-1])
        names = {last: "hidden.f16"} | {tap: f"tap-{tap}.f16" for tap in taps if tap != last}
        for name in names.values():
            if not (folder / name).is_file():
                raise ValueError(f"The features lack {name}; run `train collect` with the taps that this head reads.")
        width = (folder / "hidden.f16").stat().st_size // 2 // total
        self.layers = {tap: np.memmap(folder / name, dtype=np.float16, mode="r", shape=(total, width)) for tap, name in names.items()}
        self.last = last

    def _split(self, conversations: Sequence[Conversation]) -> None:
        self.conversations = list(conversations)
        self.starts = np.concatenate([[0], np.cumsum([len(c.ids) for c in self.conversations])])
        out = [held_out(c) for c in self.conversations]
        self.train = [i for i, held in enumerate(out) if not held]
        self.test = [i for i, held in enumerate(out) if held]

    @property
    def hidden(self) -> np.ndarray:
        """float16[tokens, H], after the final norm"""
        return self.layers[self.last]

    def batch(self, indices: Sequence[int]) -> Batch:
        chosen = [self.conversations[i] for i in indices]
        shape = (len(chosen), max(len(c.ids) for c in chosen))
        ids, answer = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
        hidden = {tap: torch.zeros(*shape, store.shape[1], dtype=torch.float16) for tap, store in self.layers.items()}
        for row, (index, c) in enumerate(zip(indices, chosen, strict=True)):
            ids[row, : len(c.ids)] = torch.from_numpy(c.ids)
            answer[row, c.answer - 1 : len(c.ids) - 1] = True
            for tap, store in self.layers.items():
                hidden[tap][row, : len(c.ids)] = torch.from_numpy(np.array(store[self.starts[index] : self.starts[index + 1]]))
        return Batch(ids.to(self.device), answer.to(self.device), {tap: part.to(self.device) for tap, part in hidden.items()})


class Text(Data):
    """Conversations alone, for what is trained from scratch."""

    def __init__(self, conversations: Sequence[Conversation], device: torch.device | str = "cpu"):
        self.device, self.layers = device, {}
        self._split(conversations)


def frequent_tokens(conversations: Sequence[Conversation], own: int, weight: float, count: int, always: Sequence[int]) -> torch.Tensor:
    """int64[count], ascending: what answers use most. The first `own` conversations, the target's own answers, weigh more."""
    counts = np.zeros(1 + max(int(c.ids.max()) for c in conversations))
    for i, c in enumerate(conversations):
        np.add.at(counts, c.ids[c.answer :], weight if i < own else 1.0)
    counts[list(always)] = np.inf
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]))
