"""Target and Session: the only file that touches a key/value cache or an attention mask.

One invariant: cache and taps cover ids[:-1]; ids[-1] is the root of the next pass. A pass scores the root and every
drafted node at once, each seeing the committed prefix and its own ancestors. `commit` keeps the accepted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from transformers import Cache, CacheLayerMixin, DynamicCache

from specviz import backend
from specviz.shallow import shallow
from specviz.tree import Draft
from specviz.vocabulary import TokenBytes

PREFILL_ROWS = 512  # rows a prefill pass, which bounds the size of its mask


class ModelError(ValueError):
    """A model that this engine cannot run, in one sentence that says what to do."""


@dataclass(frozen=True)
class Scores:
    logits: torch.Tensor  # float[N + 1, V]: row 0 after the root, row i + 1 after node i
    hidden: dict[int, torch.Tensor]  # tap -> float[N + 1, H]
    tokens: tuple[int, ...] = ()  # what each row read
    parents: tuple[int, ...] = ()  # the row that each follows, -1: the cache's end


class BufferLayer(CacheLayerMixin):
    """Keys and values of one layer in a buffer made once; rolling back is one assignment. Also holds sliding layers in full:
    their window is in the mask, so that any number of rows can be dropped again."""

    is_sliding = False

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity, self.length = capacity, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = key_states.new_empty(*key_states.shape[:2], self.capacity, key_states.shape[-1])
        self.values = value_states.new_empty(*value_states.shape[:2], self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[-2]
        if self.length > self.capacity:
            self.grow()
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def grow(self) -> None:
        self.capacity = max(2 * self.capacity, self.length)
        keys, values = self.keys, self.values
        self.lazy_initialization(keys, values)
        self.keys[:, :, : keys.shape[-2]] = keys
        self.values[:, :, : values.shape[-2]] = values

    def keep(self, start: int, rows: torch.Tensor | None, length: int) -> None:
        """Moves `rows` (absolute, ascending) to `start` and cuts to `length`; rows None: cuts only."""
        if rows is not None:
            # index_select copies first, so rows that are still needed are never overwritten
            self.keys[:, :, start:length] = self.keys.index_select(-2, rows)
            self.values[:, :, start:length] = self.values.index_select(-2, rows)
        self.length = length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


@dataclass(frozen=True)
class Target:
    """A causal model of the library with what the loop must know of it. Raises ModelError for one that cannot be rolled back."""

    name: str
    model: torch.nn.Module
    tokenizer: object
    kernels: str = field(default="", compare=False)
    head: torch.Tensor | None = field(default=None, compare=False, repr=False)  # float[V, H], rows of the output head

    def __post_init__(self):
        config = self.config
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"{self.name} is an encoder-decoder model; choose a causal language model.")
        kinds = set(getattr(config, "layer_types", None) or [])
        cacheable = all(hasattr(layer, "is_croppable") and layer.is_croppable for layer in DynamicCache(config=config).layers)
        if getattr(self.model, "_is_stateful", False) or not cacheable or kinds - {"full_attention", "sliding_attention"}:
            raise ModelError(
                f"{self.name} has layers whose state cannot be rewound, so drafts cannot be undone; choose a model of attention only."
            )
        self.model.eval().requires_grad_(False)
        output = self.model.get_output_embeddings()  # before it is packed, which hides its rows
        object.__setattr__(self, "head", getattr(output, "weight", None))
        object.__setattr__(self, "kernels", backend.prepare(self.model, self.device))

    @property
    def config(self):
        return self.model.config.get_text_config()

    @cached_property
    def device(self) -> str:
        return str(next(self.model.parameters()).device)

    @cached_property
    def dtype(self) -> str:
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")

    @property
    def embedding(self) -> torch.Tensor:
        """float[V, H]"""
        return self.model.get_input_embeddings().weight

    @property
    def vocab(self) -> int:
        """Width of a row of logits; may be larger than the tokenizer's vocabulary."""
        return self.config.vocab_size

    @property
    def context(self) -> int:
        return int(getattr(self.config, "max_position_embeddings", None) or getattr(self.config, "n_positions", None) or 2**20)

    @property
    def window(self) -> int | None:
        return getattr(self.config, "sliding_window", None)

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Every end-of-text id that the generation config or the tokenizer names."""
        named = self.model.generation_config.eos_token_id
        ids = set(named if isinstance(named, list) else [] if named is None else [named])
        if self.tokenizer is not None and self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return tuple(sorted(ids))

    def encode(self, prompt: str, raw: bool) -> list[int]:
        """Ids of the prompt, in the chat template unless `raw` or there is none. An empty raw prompt is the start token."""
        if not raw and self.tokenizer.chat_template:
            message = [{"role": "user", "content": prompt}]
            return list(self.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))
        ids = list(self.tokenizer(prompt)["input_ids"])
        start = self.tokenizer.bos_token_id
        return ids or ([start] if start is not None else [])

    def token_bytes(self, token: int) -> bytes:
        return self._bytes.get(token, b"")

    @cached_property
    def _bytes(self) -> TokenBytes:
        return TokenBytes(self.tokenizer)

    def session(self, capacity: int, taps: Sequence[int] = ()) -> Session:
        return Session(self, capacity, taps)

    def shallow(self, keep: Sequence[int]) -> Target:
        """The same model with only the layers `keep` of its own (ascending, at least one), sharing every weight.

        Its final norm and head read the last of these layers. Raises ModelError where the model's list of layers is not found.
        """
        try:
            model = shallow(self.model, keep)
        except LookupError:
            raise ModelError(f"{self.name} does not list its layers where this library looks for them; choose another method.") from None
        return Target(f"{self.name} ({len(keep)} of {self.config.num_hidden_layers} layers)", model, self.tokenizer)


class Session:
    """One sequence being decoded. capacity: positions to make room for at once (it grows where that was too few)."""

    def __init__(self, target: Target, capacity: int, taps: Sequence[int] = ()):
        self.target, self.taps = target, tuple(taps)
        self.layers = [BufferLayer(capacity) for _ in range(target.config.num_hidden_layers)]
        self.cache = Cache(layers=self.layers)
        kinds = set(getattr(target.config, "layer_types", None) or [])
        self._mixed = len(kinds) > 1
        self._windowed = kinds == {"sliding_attention"} or (not kinds and bool(target.window))
        self._dtype = next(target.model.parameters()).dtype

    @property
    def length(self) -> int:
        return self.layers[0].length

    def prefill(self, ids: Sequence[int], halted: Callable[[], bool] = lambda: False) -> dict[int, torch.Tensor]:
        """Fills the cache with ids[:-1]. Returns the taps of those positions, float[L - 1, H] each.

        halted: asked before each PREFILL_ROWS rows; true leaves it unfinished, which only a caller that gives up may want.
        """
        parts: list[dict[int, torch.Tensor]] = []
        for start in range(0, len(ids) - 1, PREFILL_ROWS):
            if halted():
                break
            rows = ids[start : min(start + PREFILL_ROWS, len(ids) - 1)]
            parts.append(self.forward(rows, tuple(range(-1, len(rows) - 1)), rows_wanted=1).hidden)
        nothing = torch.empty(0, self.target.config.hidden_size, dtype=self._dtype, device=self.target.device)
        return {tap: torch.cat([nothing, *(part[tap] for part in parts)]) for tap in self.taps}

    def score(self, root: int, draft: Draft) -> Scores:
        """One target pass over the root and every node of the draft."""
        parents = (-1, *(parent + 1 for parent in draft.parents))
        return self.forward([root, *draft.tokens.tolist()], parents)

    def commit(self, path: Sequence[int]) -> None:
        """After `score`: keeps the root's row and those of the accepted nodes, drops the rest."""
        start = self._past + 1
        length = start + len(path)
        moved = None
        if any(node != i for i, node in enumerate(path)):
            moved = torch.tensor([start + node for node in path], device=self.layers[0].keys.device)
        for layer in self.layers:
            layer.keep(start, moved, length)

    def rewind(self, length: int) -> None:
        for layer in self.layers:
            layer.keep(0, None, min(length, layer.length))

    def forward(self, tokens: Sequence[int], parents: Sequence[int], rows_wanted: int = 0) -> Scores:
        """Scores `tokens` as a tree behind the cache (parents index into tokens, -1: the cache's end); the cache grows by all.

        rows_wanted: logits of that many last rows only; 0: of all.
        """
        self._past = self.length
        depth: list[int] = []
        for parent in parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        device = self.target.device
        positions = torch.tensor([depth], device=device) + self._past
        out = self.target.model(
            input_ids=torch.tensor([list(tokens)], device=device),
            position_ids=positions,
            attention_mask=self._masks(parents, positions),
            cache=self.cache,
            use_cache=True,
            logits_to_keep=rows_wanted,
            **({"output_hidden_states": list(self.taps)} if self.taps else {}),
        )
        logits = out.logits[0]
        if logits.device.type == "mps":  # which lacks the float64 that the rules compute in
            logits = logits.cpu()
        return Scores(logits, {tap: out.hidden_states[tap][0] for tap in self.taps}, tuple(tokens), tuple(parents))

    def _masks(self, parents: Sequence[int], positions: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor] | None:
        """Additive float masks [1, 1, T, past + T]: boolean ones are silently wrong under eager attention."""
        count = len(parents)
        if count == 1 and not self._mixed and not self._windowed:
            return None  # one row sees everything
        device = positions.device
        if all(parent == i - 1 for i, parent in enumerate(parents)):
            seen = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        else:
            seen = torch.eye(count, dtype=torch.bool)
            for i, parent in enumerate(parents):
                if parent >= 0:
                    seen[i] |= seen[parent]
            seen = seen.to(device)
        seen = torch.cat([torch.ones(count, self._past, dtype=torch.bool, device=device), seen], dim=1)
        full = self._additive(seen)
        if not self._mixed and not self._windowed:
            return full
        # the window counts positions, not rows: siblings share one
        keys = torch.cat([torch.arange(self._past, device=device), positions[0]])
        sliding = self._additive(seen & (positions[0][:, None] - keys[None, :] < self.target.window))
        return {"full_attention": full, "sliding_attention": sliding} if self._mixed else sliding

    def _additive(self, seen: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(self._dtype).min)[None, None]
