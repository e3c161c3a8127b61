"""A folder of safetensors, config and tokenizer files -> Target, on a chosen device. Raises ModelError, which names no path."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from specviz.fetch import loadable
from specviz.session import ModelError, Target

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "float16")
# Tokens that only fill up a vocabulary, such as those by which two sizes of one family differ.
PADDING = re.compile(r"[<\[|]*(pad|unused|reserved|dummy|extra)[\w|>\] ]*", re.IGNORECASE)


def pick_device(device: Any) -> str:
    """The device that was asked for, with its number where it has one; auto: the first of CUDA, MPS and the CPU that is there."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if not isinstance(device, str) or not re.fullmatch(r"cpu|(mps|cuda)(:\d{1,2})?", device):
        raise ModelError(f"There is no device {_short(device)}; choose one of {', '.join(DEVICES)}.")
    if device == "cpu":
        return device
    kind, _, number = device.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else int(torch.backends.mps.is_available())
    if int(number or 0) >= count:
        raise ModelError(f"PyTorch finds no device {device} here; choose cpu or auto.")
    return f"{kind}:{int(number or 0)}"


def pick_dtype(dtype: Any, device: str) -> str:
    """auto: float32 on a CPU, where a drafted text then equals a plain one; bfloat16 on a GPU that computes in it, else float16."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelError(f"There is no dtype {_short(dtype)}; choose one of {', '.join(DTYPES)}.")
    if dtype != "auto":
        return dtype
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.get_device_capability(device)[0] >= 8 else "float16"
    return "float16" if device.startswith("mps") else "float32"


def load(folder: Path, name: str, device: str, dtype: str) -> Target:
    """Raises ModelError for a folder without safetensors, for one that needs code of its own, and when tensors are missing."""
    config = _config(folder, name)
    # the fused kernel cannot squash attention scores, and leaves that out without a word
    attention = "eager" if config.get("attn_logit_softcapping") else "sdpa"
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, output_loading_info=True, attn_implementation=attention, **local
        )
        model = model.to(device)
    except torch.OutOfMemoryError:
        raise ModelError(f"{name} does not fit into the memory of {device}; choose a smaller model or another device.") from None
    except Exception as error:  # the library raises many kinds, with paths in their text
        logging.getLogger(__name__).warning("%s: %s", name, error)
        raise ModelError(f"{name} cannot be loaded by the installed transformers library ({type(error).__name__}).") from None
    wrong = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if wrong:
        raise ModelError(f"The weights of {name} do not fit: missing {_some(wrong)}; unexpected {_some(sorted(info['unexpected_keys']))}.")
    return Target(name=name, model=model, tokenizer=tokenizer)


def check_vocabularies(target: Target, draft: Target) -> None:
    """Same string for every id, padding aside. Ids are what a draft hands to its target, so nothing less will do."""
    ours, theirs = ({index: piece for piece, index in one.tokenizer.get_vocab().items()} for one in (target, draft))
    for index in sorted(ours.keys() | theirs.keys()):
        pair = theirs.get(index), ours.get(index)
        if pair[0] != pair[1] and not all(piece is None or PADDING.fullmatch(piece) for piece in pair):
            left, right = ("nothing" if piece is None else repr(piece[:40]) for piece in pair)
            raise ModelError(
                f"{draft.name} cannot draft for {target.name}, since their vocabularies differ: {len(theirs)} and {len(ours)} tokens; "
                f"the first difference is id {index}, {left} and {right}. Choose a draft model of the target's family."
            )


def _config(folder: Path, name: str) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        kind = config.get("model_type")
    except (OSError, ValueError, AttributeError):
        raise ModelError(f"{name} has no readable config.json, so it is not a model of the transformers library.") from None
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        reason = "needs code of its own, which is never run" if "auto_map" in config else f"is of the unknown kind {_short(kind)}"
        raise ModelError(f"{name} {reason}; choose a model that the transformers library contains.")
    if not loadable(folder):
        raise ModelError(f"{name} lacks safetensors weights or a tokenizer; other weight formats can run code and are not read.")
    return config


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"
