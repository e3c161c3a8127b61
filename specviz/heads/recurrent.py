"""What EAGLE-1, EAGLE-3 and MTP share: one decoder layer that reads features and writes features.

Slot i holds the feature of position i and the token of position i + 1, and predicts the token of position i + 2. A first
step reads features of the target; a later one reads what the step before it wrote. The attention and the MLP are the
library's Llama modules; how they are wired is each head's own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Cache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from specviz import backend
from specviz.heads import files
from specviz.session import BufferLayer, ModelError

SHAPE = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "attention_bias")


class HeadCache:
    """Keys and values of a head's one layer."""

    def __init__(self, capacity: int):
        self.layer = BufferLayer(capacity)
        self.cache = Cache(layers=[self.layer])

    @property
    def length(self) -> int:
        return self.layer.length

    def rewind(self, length: int) -> None:
        self.layer.keep(0, None, min(length, self.length))


def norm(config: LlamaConfig) -> LlamaRMSNorm:
    return LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


def attention(config: LlamaConfig, width: int) -> LlamaAttention:
    """The library's attention whose projections read `width` numbers."""
    module = LlamaAttention(config, layer_idx=0)
    if width != config.hidden_size:
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(module, name)
            setattr(module, name, nn.Linear(width, old.out_features, bias=old.bias is not None))
    return module


def mlp(config: LlamaConfig) -> LlamaMLP:
    return LlamaMLP(config)


class Recurrent(nn.Module):
    """A subclass names its modules as the published files do and implements `block` and `normed`.

    embedding: float[V, H], the target's. rows: float[Vd, h] of the output head where it is shared with the target; a head
    of its own is a module of the subclass. d2t: int64[Vd], the target's id of each row, None where they are all.
    """

    kind: ClassVar[str]
    prefixes: ClassVar[tuple[tuple[str, str], ...]] = ()  # published spellings -> ours
    shared: ClassVar[tuple[str, ...]] = ()  # keys of published files that repeat what is the target's

    def __init__(self, config: LlamaConfig, embedding: torch.Tensor, d2t: torch.Tensor | None):
        super().__init__()
        self.config, self.d2t = config, d2t
        object.__setattr__(self, "embedding", embedding)  # the target's: not a parameter of the head
        self.rope = LlamaRotaryEmbedding(config)
        self.output: nn.Linear | None = None  # shared rows of the target's head

    # ---- what a subclass says
    @staticmethod
    def taps(config: Any) -> tuple[int, ...]:
        """Layers whose hidden states it reads, in the numbering of output_hidden_states."""
        return (config.num_hidden_layers,)

    def features(self, hidden: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """float[n, H] of each tap -> float[n, h]."""
        (only,) = hidden.values()
        return only.to(self.dtype)

    def block(self, embedded, features, rotary, mask, cache) -> torch.Tensor:
        """float[B, n, H], float[B, n, h] -> float[B, n, h]"""
        raise NotImplementedError

    def logits(self, out: torch.Tensor) -> torch.Tensor:
        """float[..., h] -> float[..., Vd]"""
        return self.output(out)

    # ---- what all share
    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def begin(self, capacity: int) -> HeadCache:
        return HeadCache(capacity)

    def forward(self, tokens, features, positions, mask, cache=None) -> torch.Tensor:
        """int64[B, n], float[B, n, h], int64[B, n], additive float[1 or B, 1, n, m] -> float[B, n, h]"""
        embedded = F.embedding(tokens, self.embedding).to(features.dtype)
        return self.block(embedded, features, self.rope(features, positions), mask, cache)

    def step(
        self,
        tokens: torch.Tensor,  # int64[n]
        features: torch.Tensor,  # float[n, h]
        positions: torch.Tensor,  # int64[n]
        seen: torch.Tensor | None,  # bool[n, n], which new slots each slot sees; None: causal
        cache: HeadCache,
        past_seen: torch.Tensor | None = None,  # bool[n, length]; None: all of the cache
        wanted: int = 0,  # logits of that many last slots only; 0: of all
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out float[n, h], logits float[n or wanted, Vd]); the cache grows by n."""
        count, past = len(tokens), cache.length
        mask = None
        if count > 1 or past_seen is not None:
            if seen is None:
                seen = torch.ones(count, count, dtype=torch.bool, device=tokens.device).tril_()
            before = past_seen if past_seen is not None else seen.new_ones(count, past)
            mask = torch.zeros(count, past + count, dtype=features.dtype, device=tokens.device)
            mask.masked_fill_(~torch.cat([before, seen], 1), torch.finfo(features.dtype).min)
            mask = mask[None, None]
        out = self(tokens[None], features[None], positions[None], mask, cache.cache)[0]
        return out, self.logits(out[-wanted:] if wanted else out)

    def share(self, rows: torch.Tensor) -> None:
        """Uses `rows` float[V, h] of the target's head, or those of them that d2t names."""
        chosen = rows if self.d2t is None else rows[self.d2t.to(rows.device)]
        output = nn.Linear(chosen.shape[1], chosen.shape[0], bias=False, device="meta")
        output.weight = nn.Parameter(chosen.detach(), requires_grad=False)
        object.__setattr__(self, "output", output)  # not a module of its own: never saved, never trained

    def ready(self, device: str, dtype: torch.dtype) -> Self:
        """For inference: on the target's device, with its kernels."""
        self.to(device=device, dtype=dtype).eval().requires_grad_(False)
        self.d2t = None if self.d2t is None else self.d2t.to(device)
        if self.output is not None:  # packing replaces modules inside one that holds them
            holder = nn.Sequential(self.output)
            holder.to(device=device, dtype=dtype)
            backend.prepare(holder, device)
            object.__setattr__(self, "output", holder[0])
        backend.prepare(self, device)
        return self

    @classmethod
    def from_files(cls, folder, target) -> Self:
        """Raises ModelError where the weights are not this kind of head, or do not fit the target."""
        what = f"the {cls.kind} head for {target.name}"
        facts, tensors = files.read(folder, what, cls.kind)
        tensors = {key: tensor for key, tensor in cls.keys(tensors).items() if key not in cls.shared}
        d2t = files.target_ids(tensors.pop("d2t", None), target.vocab, what)
        tensors.pop("t2d", None)
        head = cls(config_of(facts, tensors, cls.attention_at, what), target.embedding, d2t, **cls.options(facts, tensors))
        files.fill(head, tensors, what)
        if head.config.hidden_size != target.embedding.shape[1]:
            raise ModelError(
                f"The {cls.kind} head is {head.config.hidden_size} wide, {target.name} {target.embedding.shape[1]}; they do not fit."
            )
        head.share(target.head)
        return head.ready(target.device, target.embedding.dtype)

    attention_at: ClassVar[str] = "layers.0."  # where the layer's tensors stand

    @classmethod
    def keys(cls, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Published spellings of the keys -> ours."""
        return files.renamed(tensors, (("model.", ""), *cls.prefixes))

    @classmethod
    def options(cls, facts: dict, tensors: dict) -> dict[str, Any]:
        return {}

    def own_state(self) -> dict[str, torch.Tensor]:
        """What a file holds: the trained tensors and the map of a trimmed vocabulary in its published form."""
        state = {key: tensor for key, tensor in self.state_dict().items()}
        if self.d2t is not None:
            state["d2t"] = files.offsets_of(self.d2t)
        return state

    @classmethod
    def tiny(cls, target: Any, d2t: torch.Tensor | None = None, seed: int = 0, spread: float = 0.6) -> Self:
        """A random head of the target's width, for tests."""
        width = target.embedding.shape[1]
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=2 * width,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=4,
            vocab_size=target.vocab,
        )
        config._attn_implementation = "sdpa"
        generator = torch.Generator().manual_seed(seed)
        head = cls(config, target.embedding.to(torch.float32), d2t)
        for parameter in head.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(std=spread, generator=generator)
        head.share(target.head.to(torch.float32))
        return head.ready(target.device, torch.float32)


def config_of(facts: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], at: str, what: str) -> LlamaConfig:
    """Numbers that shapes tell are read from shapes: published configs are wrong about them now and then."""
    heads = facts.get("num_attention_heads")
    if type(heads) is not int or heads < 1:
        raise ModelError(f"The config.json of {what} does not say num_attention_heads.")
    query, keys = (files.rows_of(tensors, f"{at}self_attn.{name}.weight", what) for name in ("q_proj", "k_proj"))
    if query % heads or keys % (query // heads):
        raise ModelError(f"The config.json of {what} names {heads} attention heads, which its weights cannot have.")
    rope = facts.get("rope_theta") or (facts.get("rope_parameters") or {}).get("rope_theta") or 10000.0
    config = LlamaConfig(
        hidden_size=files.rows_of(tensors, f"{at}self_attn.o_proj.weight", what),
        intermediate_size=files.rows_of(tensors, f"{at}mlp.gate_proj.weight", what),
        num_attention_heads=heads,
        num_key_value_heads=keys // (query // heads),
        head_dim=query // heads,
        rms_norm_eps=facts.get("rms_norm_eps", 1e-6),
        attention_bias=f"{at}self_attn.q_proj.bias" in tensors,
        max_position_embeddings=facts.get("max_position_embeddings", 2048),
        rope_parameters={"rope_type": "default", "rope_theta": float(rope)},
    )
    config._attn_implementation = "sdpa"
    return config


def config_like(model_config: Any) -> LlamaConfig:
    """The shape of one layer of a Llama-like target, for a head that is to be trained for it."""
    heads = model_config.num_attention_heads
    width = model_config.hidden_size
    rope = (getattr(model_config, "rope_parameters", None) or {}).get("rope_theta") or getattr(model_config, "rope_theta", None) or 10000.0
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=getattr(model_config, "intermediate_size", None) or 4 * width,
        num_attention_heads=heads,
        num_key_value_heads=getattr(model_config, "num_key_value_heads", None) or heads,
        head_dim=getattr(model_config, "head_dim", None) or width // heads,
        rms_norm_eps=getattr(model_config, "rms_norm_eps", 1e-6),
        max_position_embeddings=model_config.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": float(rope)},
    )
    config._attn_implementation = "sdpa"
    return config


def facts_of(config: LlamaConfig) -> dict[str, Any]:
    """What config.json says of a head's shape, in the library's names."""
    return {name: getattr(config, name) for name in SHAPE} | {
        "rope_theta": config.rope_parameters["rope_theta"],
        "max_position_embeddings": config.max_position_embeddings,
    }
