"""A table as a language model: exact laws, instant, the same interface as session.Target. For tests and lessons.

The law after a prefix is the row of its last `order` tokens. float64 throughout, so that sums over all branches of a
run can be compared with the true law to 1e-12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import torch

from specviz.session import Scores
from specviz.tree import Draft


@dataclass(frozen=True)
class ToyTarget:
    table: torch.Tensor  # float64[V ** order, V], log-probabilities or logits
    order: int = 1
    name: str = "toy"
    context: int = 4096
    stop_ids: tuple[int, ...] = ()
    device: str = "cpu"
    dtype: str = "float64"
    kernels: str = "table"
    width: int = 8  # of hidden states and embeddings, both random: trained heads need some to read
    tokenizer: None = None

    @property
    def config(self) -> SimpleNamespace:
        return SimpleNamespace(num_hidden_layers=4, hidden_size=self.width)

    @cached_property
    def embedding(self) -> torch.Tensor:
        """float64[V, H]"""
        return torch.randn(self.vocab, self.width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    @property
    def head(self) -> torch.Tensor:
        """float64[V, H], tied to the embedding."""
        return self.embedding

    @cached_property
    def _hidden(self) -> torch.Tensor:
        shape = (*self.table.shape[:-1], 5, self.width)
        return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def hidden(self, ids: Sequence[int], tap: int) -> torch.Tensor:
        """float64[H] at the last of `ids`: depends on what the law after them depends on, and on the tap."""
        return self._hidden[self._index(ids), tap]

    @property
    def vocab(self) -> int:
        return self.table.shape[-1]

    def row(self, ids: Sequence[int]) -> torch.Tensor:
        """float64[V] logits after `ids`; a prefix shorter than the order is padded with token 0."""
        return self.table[self._index(ids)]

    def _index(self, ids: Sequence[int]) -> int:
        index = 0
        for token in ([0] * self.order + list(ids))[-self.order :] if self.order else ():
            index = index * self.vocab + token
        return index

    def encode(self, prompt: str, raw: bool) -> list[int]:
        return [ord(c) % self.vocab for c in prompt]

    def token_bytes(self, token: int) -> bytes:
        return chr(ord("a") + token).encode() if token < 26 else f"<{token}>".encode()

    def session(self, capacity: int, taps: Sequence[int] = ()) -> ToySession:
        return ToySession(self, taps)

    def shallow(self, keep: Sequence[int]) -> ToyTarget:
        """The flatter table, the fewer layers: alike, but not the same, as with a model that ends early."""
        return replace(self, name=f"{self.name} ({len(keep)} layers)", table=self.table * (len(keep) / self.config.num_hidden_layers))


class ToySession:
    def __init__(self, target: ToyTarget, taps: Sequence[int] = ()):
        self.target, self.taps, self.ids = target, tuple(taps), []

    @property
    def length(self) -> int:
        return len(self.ids)

    def prefill(self, ids: Sequence[int], halted=None) -> dict[int, torch.Tensor]:
        self.ids = list(ids[:-1])
        nothing = torch.empty(0, self.target.width, dtype=torch.float64)
        return {tap: torch.cat([nothing, *(self.target.hidden(ids[: i + 1], tap)[None] for i in range(len(ids) - 1))]) for tap in self.taps}

    def score(self, root: int, draft: Draft) -> Scores:
        return self.forward([root, *draft.tokens.tolist()], (-1, *(parent + 1 for parent in draft.parents)))

    def forward(self, tokens: Sequence[int], parents: Sequence[int], rows_wanted: int = 0) -> Scores:
        self._past = len(self.ids)
        paths: list[list[int]] = []
        for token, parent in zip(tokens, parents, strict=True):
            paths.append([*(paths[parent] if parent >= 0 else []), token])
        rows = torch.stack([self.target.row(self.ids + path) for path in paths[-rows_wanted:]])
        hidden = {tap: torch.stack([self.target.hidden(self.ids + path, tap) for path in paths]) for tap in self.taps}
        self.ids += tokens
        return Scores(rows, hidden, tuple(tokens), tuple(parents))

    def commit(self, path: Sequence[int]) -> None:
        root, *nodes = self.ids[self._past :]
        self.ids[self._past :] = [root, *(nodes[i] for i in path)]

    def rewind(self, length: int) -> None:
        del self.ids[length:]


def random_table(vocab: int, order: int, seed: int, sharpness: float = 1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(vocab**order, vocab, dtype=torch.float64, generator=generator) * sharpness).log_softmax(-1)
