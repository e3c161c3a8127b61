"""Tiny random transformers of the library, one of each kind of attention that the engine must get right. float32, fixed seeds."""

from __future__ import annotations

import functools

import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GenerationConfig, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from specviz.drafters import Plain
from specviz.session import Target

VOCAB = 64
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": None, "eos_token_id": None}
CONFIGS = {
    "llama": lambda **more: LlamaConfig(**{**SHAPE, **more}),
    "qwen2": lambda **more: Qwen2Config(**{**SHAPE, **more}),
    "qwen2 with windows": lambda **more: Qwen2Config(
        **{**SHAPE, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, **more}
    ),
    "qwen3": lambda **more: Qwen3Config(**{**SHAPE, "head_dim": 8, **more}),
    "gemma3": lambda **more: Gemma3TextConfig(
        **{
            **SHAPE,
            "head_dim": 8,
            "tie_word_embeddings": False,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            **more,
        }
    ),
    "gpt2": lambda **more: GPT2Config(**{**GPT2, **more}),
}
WINDOWED = ("qwen2 with windows", "gemma3")


class Letters:
    """A tokenizer of VOCAB characters, of which the first 26 are letters; what Target needs of one and no more."""

    chat_template = None
    bos_token_id = None
    eos_token_id = None
    added_tokens_decoder: dict = {}  # noqa: RUF012

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) % VOCAB for c in text]}

    def get_vocab(self) -> dict[str, int]:
        return {chr(97 + i) if i < 26 else chr(0x3B1 + i): i for i in range(VOCAB)}


def tiny_model(kind: str, seed: int = 0, attention: str = "sdpa", noise: float = 0.0, **shape) -> torch.nn.Module:
    """Weights wide enough that laws differ from place to place and ties do not occur. noise: makes a draft that is often right."""
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        CONFIGS[kind](**{k: list(v) if isinstance(v, tuple) else v for k, v in shape.items()}),
        attn_implementation=attention,
        dtype=torch.float32,
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6 if "embed" in name or "wte" in name else 0.35)
    if noise:
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * noise * parameter.data.std().nan_to_num())
    torch.random.set_rng_state(torch_state)
    return model.eval()


@functools.cache
@torch.inference_mode(False)  # whichever test asks first, every other can train on it
def tiny(kind: str, *args, **more) -> Target:
    return Target(kind, tiny_model(kind, *args, **more), Letters())


class Watched:
    """A target that remembers the sessions that were opened on it."""

    def __init__(self, target: Target):
        self.target, self.sessions = target, []

    def __getattr__(self, name):
        return getattr(self.target, name)

    def session(self, *args, **more):
        self.sessions.append(self.target.session(*args, **more))
        return self.sessions[-1]


def prompt_ids(length: int, seed: int = 1) -> list[int]:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(target, drafter, ids, sampling, limits, **how):
    """(header, iterations) of a whole run."""
    from specviz.decode import decode

    header, *iterations = decode(target, drafter, "", sampling, limits, prompt_ids=ids, **how)
    return header, iterations


def emitted(iterations) -> list[int]:
    return [token for it in iterations for token in it.emitted]


def plain_ids(target, ids, sampling, limits) -> list[int]:
    return emitted(run(target, Plain(), ids, sampling, limits)[1])


def library_greedy(target: Target, ids, max_new: int, stop_ids=()) -> list[int]:
    """What the library's own generate() makes of it, on the same model."""
    config = GenerationConfig(max_new_tokens=max_new, do_sample=False, eos_token_id=list(stop_ids) or None, pad_token_id=0)
    inputs = torch.tensor([list(ids)], device=target.device)
    out = target.model.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=config)
    return out[0, len(ids) :].tolist()
