"""Writes small GGUF files of random models, the way converters write large ones, and says what weights must come back."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config, Starcoder2Config

from specviz.vocabulary import byte_alphabet

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGED = ["he", "ll", "hell", "hello"]
TOKENS = [*byte_alphabet(), *MERGED, *SPECIAL]
MERGES = ["h e", "l l", "he ll", "hell o"]
END, START, TURN_END = range(len(TOKENS) - 3, len(TOKENS))
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"

SHAPE = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": END,
    "eos_token_id": TURN_END,
}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "qwen2": lambda: Qwen2Config(**SHAPE, tie_word_embeddings=False),
    "gemma3": lambda: Gemma3TextConfig(**SHAPE, head_dim=16, sliding_window=8, tie_word_embeddings=True),
    "starcoder2": lambda: Starcoder2Config(**SHAPE, tie_word_embeddings=False, norm_epsilon=1e-5),
}


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Row i and row i + half of each head become neighbours: how Llama files store query and key projections."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1)
    return np.stack([halves[:, 0], halves[:, 1]], axis=2).reshape(rows.shape)


def write(
    path: Path, arch: str, *, template: str = TEMPLATE, drop: str = "", extra: str = "", cut: bool = False
) -> dict[str, torch.Tensor]:
    """A GGUF file of family `arch`. Returns name -> weights, float32, that must come back."""
    torch.manual_seed(0)
    config = CONFIGS[arch]()
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    writer = gguf.GGUFWriter(path, arch)
    _facts(writer, config, template)
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], config.num_hidden_layers)
    expected = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = gguf.GGMLQuantizationType.Q4_1 if value.ndim == 2 else gguf.GGMLQuantizationType.F32
        plain = value.numpy().copy()
        quantised = gguf.quantize(plain, kind)
        expected[name] = torch.from_numpy(np.array(gguf.dequantize(quantised, kind)))
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            quantised = gguf.quantize(interleave(plain, 4 if "q_proj" in name else 2), kind)
        if arch == "gemma3" and name.endswith("norm.weight"):
            quantised = plain + 1
            expected[name] = torch.from_numpy(quantised - 1)
        if name != drop:
            writer.add_tensor(stored, quantised, raw_dtype=kind)
    if extra:
        writer.add_tensor(extra, np.ones(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if cut:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    return expected


def _facts(writer: gguf.GGUFWriter, config, template: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10000.0)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(config.norm_epsilon)
    if getattr(config, "head_dim", 0) and hasattr(config, "sliding_window"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_sliding_window(config.sliding_window)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.NORMAL] * (len(TOKENS) - 3) + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(TURN_END)
    if template:
        writer.add_chat_template(template)
