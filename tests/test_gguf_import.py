"""GGUF -> safetensors: the same numbers as the file holds and as the library's own loader reads, tokenizer and stops included."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from specviz import gguf_import
from specviz.gguf_import import GgufError, convert
from tests.tinygguf import END, TOKENS, TURN_END, write


def quiet(fraction, text):
    pass


def converted(tmp_path: Path, arch: str, **how) -> tuple[Path, Path, dict[str, torch.Tensor]]:
    path, folder = tmp_path / "tiny.gguf", tmp_path / "folder"
    expected = write(path, arch, **how)
    folder.mkdir()
    convert(path, folder, quiet)
    return path, folder, expected


def read(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            found |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    return found


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma3"])
def test_weights_are_those_of_the_file_to_the_last_bit(tmp_path, arch):
    _, folder, expected = converted(tmp_path, arch)
    found = read(folder)
    assert found.keys() == expected.keys()
    assert all(found[name].dtype == torch.float32 and torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma3", "starcoder2"])
def test_the_folder_computes_what_the_librarys_own_loader_computes(tmp_path, arch):
    pytest.importorskip("accelerate")
    path, folder, _ = converted(tmp_path, arch)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.arange(20)[None] * 7 % len(TOKENS)
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_rows_that_were_not_put_back_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setitem(gguf_import.FAMILIES, "llama", lambda name, values, config: values)
    _, folder, expected = converted(tmp_path, "llama")
    found = read(folder)
    assert {name.split(".")[-2] for name, value in expected.items() if not torch.equal(found[name], value)} == {"q_proj", "k_proj"}


def test_tokenizer_and_chat_template_survive(tmp_path):
    _, folder, _ = converted(tmp_path, "llama")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == len(TOKENS)
    ids = tokenizer("hello <b> $5 世界 🤗")["input_ids"]
    assert tokenizer.decode(ids) == "hello <b> $5 世界 🤗" and ids[0] == TOKENS.index("hello")
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], add_generation_prompt=True, tokenize=False)
    assert chat == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant"


def test_files_that_lie_beside_are_not_heeded(tmp_path):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    auto = {"AutoTokenizer": ["own.T", None], "AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T", "auto_map": auto}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    (tmp_path / "tokenizer.json").write_text("{}")
    _, folder, _ = converted(tmp_path, "llama")
    assert len(AutoTokenizer.from_pretrained(folder)) == len(TOKENS)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(("template", "stops"), [("{{ messages }}", [END, TURN_END]), ("", [TURN_END])])
def test_a_chat_model_stops_at_every_end_token_of_its_vocabulary(tmp_path, template, stops):
    _, folder, _ = converted(tmp_path, "qwen2", template=template)
    assert GenerationConfig.from_pretrained(folder).eos_token_id == stops


def test_large_models_are_written_in_shards_that_load(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_import, "SHARD_BYTES", 50_000)
    _, folder, expected = converted(tmp_path, "qwen2")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2 and index["weight_map"].keys() == expected.keys()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"drop": "model.layers.1.mlp.up_proj.weight"}, ["missing model.layers.1.mlp.up_proj.weight", "unexpected none"]),
        ({"extra": "blk.0.surprise.weight"}, ["missing none", "unexpected blk.0.surprise.weight"]),
        ({"cut": True}, ["damaged or cut off"]),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path, how, words):
    with pytest.raises(GgufError) as refused:
        converted(tmp_path, "llama", **how)
    assert all(word in str(refused.value) for word in words)
    assert str(tmp_path) not in str(refused.value)
    assert not list((tmp_path / "folder").glob("*.safetensors"))


@pytest.mark.parametrize("content", [b"", b"GG", b"GGUF", b"GGUF" + b"\xff" * 400, b"PK\x03\x04" * 50])
def test_a_file_that_is_no_gguf_file_is_refused(tmp_path, content):
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(GgufError):
        convert(tmp_path / "x.gguf", tmp_path, quiet)


def test_llama_3_position_scaling_is_carried_over_and_an_unknown_one_refused(tmp_path, monkeypatch):
    import gguf
    import numpy as np
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = 8192
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    factors = 1.0 / 10000.0 ** (torch.arange(0, 128, 2) / 128) / scaled

    def carried(table: torch.Tensor) -> dict:
        path = tmp_path / "rope.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("rope_freqs.weight", table.numpy().astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        reader = gguf.GGUFReader(path)
        plain = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
        gguf_import._rope(reader, "llama", plain, {tensor.name: tensor for tensor in reader.tensors})
        return plain.rope_parameters

    assert carried(factors) == rope
    with pytest.raises(GgufError, match="not Llama 3's"):
        carried(factors * torch.linspace(1, 2, len(factors)))


FILES = Path(os.environ.get("SPECVIZ_MODELS", "/nonexistent"))
LETTERS = {"qwen2.5-coder-0.5b": (" Paris. Paris is located in", [151643, 151645]), "gemma3-270m": (" the capital of the country", [1])}


@pytest.mark.models
@pytest.mark.parametrize("name", LETTERS)
def test_real_files_of_other_families_speak(tmp_path, name):
    path = FILES / f"{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{name}.gguf is not in the folder that SPECVIZ_MODELS names")
    convert(path, tmp_path, quiet)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    text = tokenizer.decode(model.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :])
    beginning, stops = LETTERS[name]
    assert text.startswith(beginning) and model.generation_config.eos_token_id == stops
