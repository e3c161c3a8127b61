"""One GGUF file -> a folder of safetensors, config and tokenizer files that loads in about a second.

Weights are stored as float32: a dequantised value is a product and a sum of two 16-bit floats (scale * integer + offset), which
16 bits cannot hold, and nothing should differ from the file but its spelling. They are written in shards of about a gigabyte, so
that memory holds one shard and not one model. Families whose tensors are stored differently from the library's modules are
undone here (Llama: rows of the query and key projections are interleaved for another rotary layout; Gemma: norms hold 1 + w);
families not listed go through the library's own loader, which is slower and needs more memory but gives the same folder.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

Progress = Callable[[float, str], None]

SHARD_BYTES = 1 << 30
# Tokens that end an answer wherever a chat template uses them; a GGUF file names only one, the published models several.
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<turn|>")


class GgufError(ValueError):
    """One sentence: what is wrong with the file and what to do. Names no path."""


def convert(path: Path, folder: Path, progress: Progress) -> None:
    """Fills `folder` (it must exist) from the GGUF file at `path`. Raises GgufError; OSError when the disk does."""
    reader = _open(path)
    arch = _text(reader, "general.architecture")
    needed = 4 * sum(int(np.prod(tensor.shape)) for tensor in reader.tensors)
    free = shutil.disk_usage(folder).free
    if needed * 1.05 > free:
        raise GgufError(f"Converting this model needs {needed / 1e9:.1f} GB of disk in the cache folder; {free / 1e9:.1f} GB are free.")
    progress(0.1, "Reading the tokenizer")
    with _alone(path) as file:
        try:
            config = AutoConfig.from_pretrained(**file)
            tokenizer = AutoTokenizer.from_pretrained(**file)
        except Exception as error:  # the library raises a dozen kinds on files it does not know
            raise GgufError(f"The installed transformers library cannot read this {arch!r} GGUF file ({_short(error)}).") from None
        tokenizer.save_pretrained(folder)
        if arch in FAMILIES:
            _import_weights(reader, arch, config, folder, progress)
        else:
            progress(0.3, "Converting with the library's loader; this can take minutes")
            config = _import_with_library(file, arch, folder)
    _generation_config(config, tokenizer).save_pretrained(folder)
    progress(1.0, "Converted")


def _open(path: Path) -> gguf.GGUFReader:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise GgufError("This file is not a GGUF file: it does not start with the letters GGUF.")
        reader = gguf.GGUFReader(path)
    except (OSError, GgufError):
        raise
    except Exception as error:  # the reader meets a damaged file with whatever its arithmetic raises first
        raise GgufError(f"This GGUF file is damaged or cut off ({_short(error)}); fetch it again.") from None
    if "split.count" in reader.fields and int(reader.fields["split.count"].contents()) > 1:
        raise GgufError("This GGUF file is one part of several; merge the parts into one file first.")
    return reader


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[dict[str, Any]]:
    """Arguments that make the library read this file from a folder of its own: it would also heed other files that lie beside
    it, such as the tokenizer configuration of another model, or one that asks for code to be run."""
    with tempfile.TemporaryDirectory() as folder:
        name = "model.gguf"
        try:
            os.symlink(path.resolve(), Path(folder) / name)
        except OSError:  # a system where links are not for everybody
            shutil.copyfile(path, Path(folder) / name)
        yield {"pretrained_model_name_or_path": folder, "gguf_file": name, "local_files_only": True, "trust_remote_code": False}


def _text(reader: gguf.GGUFReader, key: str) -> str:
    field = reader.fields.get(key)
    if field is None:
        raise GgufError(f"This GGUF file does not name its {key.rsplit('.', 1)[-1]}; it is not a language model.")
    return str(field.contents())


# What the file stores -> what the library's module holds, per family. `config` is the library's.


def _as_is(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    return values


def _llama(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    """Undoes the row order that pairs rotary dimensions (2i, 2i+1); the library pairs (i, i + half)."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
    if heads is None:
        return values
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _gemma(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    return values - 1 if name.endswith("norm.weight") else values


FAMILIES: dict[str, Callable[[str, np.ndarray, Any], np.ndarray]] = {
    "llama": _llama,
    "qwen2": _as_is,
    "qwen3": _as_is,
    "gemma2": _gemma,
    "gemma3": _gemma,
}


def _import_weights(reader: gguf.GGUFReader, arch: str, config: Any, folder: Path, progress: Progress) -> None:
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    _rope(reader, arch, config, tensors)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    known = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[arch], config.num_hidden_layers)
    shapes = {name: tuple(value.shape) for name, value in skeleton.state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    source = {name: names.get_name(name, try_suffixes=(".weight", ".bias")) for name in shapes}
    missing = sorted(name for name, stored in source.items() if stored not in tensors)
    unexpected = sorted(set(tensors) - set(source.values()))
    if missing or unexpected:
        raise GgufError(f"This GGUF file does not fit a {arch!r} model: missing {_some(missing)}; unexpected {_some(unexpected)}.")

    def values() -> Iterator[tuple[str, torch.Tensor]]:
        for count, (name, shape) in enumerate(shapes.items()):
            progress(0.3 + 0.65 * count / len(shapes), "Converting the weights")
            stored = tensors[source[name]]
            array = FAMILIES[arch](stored.name, gguf.dequantize(stored.data, stored.tensor_type), config)
            if array.shape != shape:
                raise GgufError(f"Tensor {stored.name} of this GGUF file has shape {array.shape}; the model needs {shape}.")
            yield name, torch.from_numpy(np.array(array, dtype=np.float32, order="C"))

    _write_shards(values(), folder)
    _save_config(config, type(skeleton).__name__, folder)


def _rope(reader: gguf.GGUFReader, arch: str, config: Any, tensors: dict[str, Any]) -> None:
    """Position scaling that the library does not read from GGUF: carried over where it is exactly known, else refused."""
    kind = reader.fields.get(f"{arch}.rope.scaling.type")
    if kind is not None and kind.contents() not in ("none", ""):
        raise GgufError(
            f"This GGUF file scales positions by {kind.contents()!r}, which cannot be carried over; use the model's own folder."
        )
    stored = tensors.pop("rope_freqs.weight", None)
    if stored is None:
        return
    factors = torch.from_numpy(np.array(stored.data, dtype=np.float32))
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, 2 * len(factors), 2) / (2 * len(factors)))
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": config.rope_parameters["rope_theta"],
        "factor": float(factors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    if scaled.shape != plain.shape or not torch.allclose(plain / factors, scaled, rtol=1e-4):
        raise GgufError("This GGUF file scales positions by a table that is not Llama 3's; use the model's own folder.")


def _write_shards(values: Iterator[tuple[str, torch.Tensor]], folder: Path) -> None:
    """model.safetensors, or numbered shards with an index, each about SHARD_BYTES."""
    shards: list[list[str]] = []
    held: dict[str, torch.Tensor] = {}
    total = 0

    def flush() -> None:
        save_file(held, folder / f"shard-{len(shards)}", metadata={"format": "pt"})
        shards.append(list(held))
        held.clear()

    for name, value in values:
        held[name] = value
        total += value.nbytes
        if sum(one.nbytes for one in held.values()) >= SHARD_BYTES:
            flush()
    if held:
        flush()
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return
    weight_map = {}
    for number, held_names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{number}").rename(folder / file)
        weight_map.update(dict.fromkeys(held_names, file))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def _import_with_library(file: dict[str, Any], arch: str, folder: Path) -> Any:
    try:
        loaded = AutoModelForCausalLM.from_pretrained(**file, dtype=torch.float32)
    except Exception as error:
        raise GgufError(f"The installed transformers library cannot load this {arch!r} GGUF file ({_short(error)}).") from None
    # A model that came from GGUF refuses to be saved, a fresh one with the same weights does not.
    config = copy.deepcopy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.save_pretrained(folder)
    return fresh.config


def _save_config(config: Any, architecture: str, folder: Path) -> None:
    config.architectures = [architecture]
    config.dtype = "float32"
    config.name_or_path = ""
    config.save_pretrained(folder)


def _generation_config(config: Any, tokenizer: Any) -> GenerationConfig:
    """Every id that ends a text: the file's own, and for chat models the end tokens its vocabulary holds."""
    stops = {config.eos_token_id} if isinstance(config.eos_token_id, int) else set(config.eos_token_id or ())
    if tokenizer.eos_token_id is not None:
        stops.add(tokenizer.eos_token_id)
    if tokenizer.chat_template:
        vocabulary = tokenizer.get_vocab()
        stops.update(vocabulary[token] for token in END_TOKENS if token in vocabulary)
    return GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=sorted(stops), pad_token_id=config.pad_token_id)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def _short(error: Exception) -> str:
    """The kind of a library's error: its text may hold paths of this machine, so only the log gets it."""
    logging.getLogger(__name__).info("while reading a GGUF file", exc_info=error)
    return type(error).__name__
