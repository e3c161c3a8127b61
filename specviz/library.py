"""The library's own generate() on the same model object and kernels: the outside check of plain decoding's speed, and of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from specviz.decode import Limits
from specviz.drafters import Drafter
from specviz.sampling import Sampling


class Watch(BaseStreamer):
    """When the library's generate() hands over its first tokens, and how many come after them."""

    def __init__(self):
        self.first, self.later, self.calls = 0.0, 0, 0

    def put(self, value: torch.Tensor) -> None:
        self.calls += 1
        if self.calls == 2:  # the first call is the prompt
            self.first = time.perf_counter()
        elif self.calls > 2:
            self.later += value.numel()

    def end(self) -> None:
        self.last = time.perf_counter()


def libraries(
    target, methods: Mapping[str, Callable[[], Drafter]], limits: Limits, sampling: Sampling, raw: bool
) -> dict[str, Callable[[str], float]]:
    """The library's own decoding on the same model object and kernels: prompt -> tokens a second after the first tokens came."""
    # every field is given: what is left out, the library takes from the model's own generation config
    settings = {
        "max_new_tokens": limits.max_new,
        "eos_token_id": list(target.stop_ids) or None,
        "pad_token_id": 0,
        "repetition_penalty": float(sampling.repetition_penalty),
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature:
        settings |= {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p or None}

    def generate(prompt: str, assistant_model=None, **more: Any) -> float:
        ids = torch.tensor([target.encode(prompt, raw)], device=target.device)
        watch, config = Watch(), GenerationConfig(**settings, **more)
        extra = {"assistant_model": assistant_model} if assistant_model is not None else {}
        target.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, streamer=watch, **extra)
        return watch.later / (watch.last - watch.first) if watch.later else 0.0

    found = {"generate": generate, "prompt_lookup": lambda prompt: generate(prompt, prompt_lookup_num_tokens=10)}
    drafter = methods["draft_model"]() if "draft_model" in methods else None
    if drafter is not None and drafter.d2t is None:  # the library cannot map a trimmed vocabulary
        found["assisted"] = lambda prompt: generate(prompt, assistant_model=drafter.model.model)
    return found
