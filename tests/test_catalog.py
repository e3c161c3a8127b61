"""What may be loaded, what is refused and in which words; the default model as a user's first start gets it."""

import contextlib
import json
import math
import pickle
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specviz import catalog, load
from specviz.catalog import CatalogError, load_drafter, load_target, targets
from specviz.gguf_import import convert
from specviz.heads import draft as draft_head
from tests.tinygguf import END, MERGED, TOKENS, TURN_END, write

PATHS = {"allow_paths": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A folder with a small Llama model and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    write(folder.parent / "tiny.gguf", "llama")
    convert(folder.parent / "tiny.gguf", folder, lambda fraction, text: None)
    return folder


@pytest.fixture
def copy(tiny, tmp_path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def refusal(call, *args, **more) -> str:
    with pytest.raises(CatalogError) as refused:
        call(*args, **more)
    text = str(refused.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 700
    return text


# --- models.yaml


def test_the_default_comes_first_and_every_draft_model_is_an_entry():
    specs = targets()
    names = [spec.name for spec in specs]
    assert names[0] == "smollm2-135m" and len(set(names)) == len(names) >= 6
    for spec in specs:
        assert spec.label and all(spec.note[lang] for lang in ("en", "zh")) and spec.license and spec.sources
        for source in spec.sources:
            assert ("hub" in source) != ("package" in source)
            assert "package" not in source or ("==" in source["package"] and len(source["sha256"]) == 64)
        for method, named in spec.drafters.items():
            assert catalog.METHODS[method].needs == "model"
            assert ("target" in named) != ("head" in named)
            assert "target" not in named or named["target"] in names


# --- names and paths


@pytest.mark.parametrize("name", ["../../etc", "/etc", "gpt2", "org/model", "", ".", None, 5, ["a"], "a\0b", "x" * 9999, "<img src=x>"])
def test_names_outside_the_list_are_refused_where_paths_are_not_allowed(name):
    text = refusal(load_target, name)
    assert "smollm2-135m" in text and "path" not in text


@pytest.mark.parametrize("name", ["/no/such/folder", "", None, 5, "a\0b", "x" * 300 + "/y", "x" * 9999])
def test_paths_that_do_not_exist_are_refused_where_paths_are_allowed(name):
    assert "existing folder" in refusal(load_target, name, **PATHS)


def test_a_path_with_dots_is_refused_even_when_it_exists(tiny):
    assert "'..'" in refusal(load_target, str(tiny / ".." / tiny.name), **PATHS)


def test_errors_name_the_model_and_never_where_it_lies(copy):
    (copy / "config.json").write_text("{broken")
    text = refusal(load_target, str(copy), **PATHS)
    assert text.startswith("copy ") and str(copy.parent) not in text


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("tpu", "auto"),
        ("cpu:0", "auto"),
        ("cuda:999", "auto"),
        (None, "auto"),
        (0, "auto"),
        ("cpu", "int8"),
        ("cpu", None),
        ("cpu", "float64"),
    ],
)
def test_an_unknown_device_or_dtype_is_refused_before_anything_is_read(device, dtype):
    assert (repr(device) if dtype == "auto" else repr(dtype)).strip("'") in refusal(load_target, "smollm2-135m", device, dtype)


@pytest.mark.parametrize("there", [(True, True, "cuda:0"), (False, True, "mps:0"), (False, False, "cpu")])
def test_auto_takes_the_best_device_that_is_there(monkeypatch, there):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there[0])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(there[0]))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: there[1])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert load.pick_device("auto") == there[2]
    assert load.pick_dtype("auto", there[2]) == {"cuda:0": "float16", "mps:0": "float16", "cpu": "float32"}[there[2]]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert load.pick_dtype("auto", "cuda:0") == "bfloat16"


# --- what is in a folder


def test_a_folder_loads_once_for_each_device_and_dtype(tiny):
    found = []
    threads = [threading.Thread(target=lambda: found.append(load_target(str(tiny), "cpu", **PATHS))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and all(one is found[0] for one in found)
    other = load_target(str(tiny), "cpu", "bfloat16", **PATHS)
    assert other is not found[0] and (found[0].dtype, other.dtype) == ("float32", "bfloat16")
    assert found[0].name == "tiny" and found[0].stop_ids == (END, TURN_END)


def test_a_gguf_file_loads_by_its_path(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    heard = []
    target = load_target(str(tiny) + ".gguf", "cpu", progress=lambda fraction, text: heard.append(text), **PATHS)
    assert target.name == "tiny.gguf" and target.vocab == len(TOKENS) and heard[-1] == "Loading tiny.gguf"
    folder = load_target(str(tiny), "cpu", **PATHS)
    ids = torch.arange(12)[None]
    assert torch.equal(target.model(ids).logits, folder.model(ids).logits)


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt", "pytorch_model.pt"])
def test_pickled_weights_are_refused_and_never_opened(copy, tmp_path, file):
    (copy / "model.safetensors").unlink()
    with open(copy / file, "wb") as out:
        pickle.dump(Bomb(tmp_path / "marker"), out)
    assert "safetensors" in refusal(load_target, str(copy), **PATHS)
    assert not (tmp_path / "marker").exists()


def test_a_model_with_code_of_its_own_is_refused_and_its_code_never_run(copy, tmp_path):
    (copy / "modeling_own.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    config = json.loads((copy / "config.json").read_text())
    own = {"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"}
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "own_model", "auto_map": own}))
    assert "needs code of its own" in refusal(load_target, str(copy), **PATHS)
    (copy / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["modeling_own.Tok", None]}})
    )
    (copy / "config.json").write_text(json.dumps(config | {"auto_map": own}))  # a kind that the library knows is loaded by the library
    with contextlib.suppress(CatalogError):
        load_target(str(copy), "cpu", **PATHS)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("config", [{}, {"model_type": "nonsense"}, {"model_type": ["llama"]}, [], None, {"model_type": "whisper"}])
def test_what_is_no_causal_model_is_refused(copy, config):
    (copy / "config.json").write_text(json.dumps(config))
    assert "copy" in refusal(load_target, str(copy), **PATHS)


def test_weights_that_do_not_fit_are_refused_with_their_names(copy):
    weights = load_file(copy / "model.safetensors")
    weights["model.layers.1.mlp.surprise.weight"] = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    text = refusal(load_target, str(copy), "cpu", **PATHS)
    assert "missing model.layers.1.mlp.up_proj.weight" in text and "unexpected model.layers.1.mlp.surprise.weight" in text


def test_a_file_cut_short_is_refused(copy):
    data = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert "copy cannot be loaded" in refusal(load_target, str(copy), "cpu", **PATHS)


# --- drafters


@pytest.fixture(scope="module")
def target(tiny):
    return load_target(str(tiny), "cpu", **PATHS)


def test_knobs_arrive_in_the_drafter(target):
    drafter = load_drafter(target, "prompt_lookup", {"gamma": 7, "ngram": 3})
    assert (drafter.gamma, drafter.ngram) == (7, 3)
    assert load_drafter(target, "prompt_lookup", {}) is not load_drafter(target, "prompt_lookup", {})


@pytest.mark.parametrize("value", [True, 0, 33, 2.5, -1, math.nan, math.inf, 10**400, "4", None, [4], {}])
def test_a_bad_value_of_a_knob_is_refused_by_its_name(target, value):
    text = refusal(load_drafter, target, "prompt_lookup", {"gamma": value})
    assert "prompt_lookup" in text and "gamma" in text


@pytest.mark.parametrize(
    ("name", "value"), [("adaptive", "sometimes"), ("adaptive", None), ("adaptive", []), ("confidence", True), ("confidence", 1.5)]
)
def test_a_bad_choice_or_fraction_is_refused_before_a_draft_model_is_looked_for(target, name, value):
    assert name in refusal(load_drafter, target, "draft_model", {name: value})


@pytest.mark.parametrize("name", ["beam", "model", "d2t", "paper", "__class__"])
def test_what_is_no_knob_cannot_be_set(target, name):
    assert "has no setting" in refusal(load_drafter, target, "draft_model", {name: 1})


@pytest.mark.parametrize("method", ["medusa2", "", None])
def test_an_unknown_method_is_refused(target, method):
    assert "There is no method" in refusal(load_drafter, target, method, {})


def test_a_draft_model_that_is_not_there_is_an_error_and_not_a_run_without_one(target):
    assert "No draft model is listed for tiny" in refusal(load_drafter, target, "draft_model", {})
    assert "/no/such/draft" in refusal(load_drafter, target, "draft_model", {}, "/no/such/draft", **PATHS)
    assert "There is no model" in refusal(load_drafter, target, "draft_model", {}, "/no/such/draft")


def test_a_whole_model_drafts_for_its_own_vocabulary(target, tiny):
    drafter = load_drafter(target, "draft_model", {"gamma": 3}, str(tiny), **PATHS)
    assert drafter.gamma == 3 and drafter.model.vocab == target.vocab and drafter.d2t is None


def edited(folder: Path, change) -> str:
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text())
    change(spec)
    file.write_text(json.dumps(spec))
    return str(folder)


def test_two_ids_swapped_are_refused_with_sizes_id_and_both_strings(target, copy):
    def swap(spec):
        vocabulary = spec["model"]["vocab"]
        vocabulary["he"], vocabulary["ll"] = vocabulary["ll"], vocabulary["he"]

    text = refusal(load_drafter, target, "draft_model", {}, edited(copy, swap), **PATHS)
    first = TOKENS.index(MERGED[0])
    assert f"{len(TOKENS)} and {len(TOKENS)} tokens" in text and f"id {first}, 'll' and 'he'" in text


def added(*names):
    def change(spec):
        start = len(TOKENS)
        for i, name in enumerate(names):
            one = {"id": start + i, "content": name, "special": True}
            spec["added_tokens"].append(one | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False))

    return change


def test_a_longer_vocabulary_is_fine_only_when_the_rest_is_padding(target, copy):
    name = edited(copy, added("[PAD264]", "<unused7>", "<|reserved_special_token_9|>"))
    assert load_drafter(target, "draft_model", {}, name, **PATHS).model.name == "copy"


def test_a_vocabulary_with_one_more_real_token_is_refused(target, copy):
    text = refusal(load_drafter, target, "draft_model", {}, edited(copy, added("<think>")), **PATHS)
    assert f"{len(TOKENS) + 1} and {len(TOKENS)} tokens" in text and f"id {len(TOKENS)}, '<think>' and nothing" in text


@pytest.fixture
def head(tiny, tmp_path) -> Path:
    """Trained weights as `specviz train draft` leaves them: one layer of the target, a head of 40 ids in another order."""
    d2t = torch.randperm(len(TOKENS), generator=torch.Generator().manual_seed(1))[:40]
    draft = draft_head.copied(AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32), [1], d2t)
    draft_head.save(draft, d2t, {"layers": [1]}, tmp_path / "head")
    return tmp_path / "head"


def test_trained_weights_load_with_their_map(target, head):
    drafter = load_drafter(target, "draft_model", {}, str(head), **PATHS)
    assert drafter.d2t.tolist() == load_file(head / "model.safetensors")["d2t"].tolist()
    assert len(set(drafter.d2t.tolist())) == 40


@pytest.mark.parametrize("change", ["remove", "rename", "no map", "cut", "no config", "bad config", "no layers"])
def test_trained_weights_that_do_not_fit_are_refused(target, head, change):
    weights = load_file(head / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    words = [name]
    if change == "remove":
        weights.pop(name)
    elif change == "rename":
        weights["model.layers.0.mlp.other.weight"] = weights.pop(name)
        words.append("unexpected model.layers.0.mlp.other.weight")
    elif change == "no map":
        weights.pop("d2t")
        words = ["map"]
    save_file(weights, head / "model.safetensors")
    if change == "cut":
        data = (head / "model.safetensors").read_bytes()
        (head / "model.safetensors").write_bytes(data[:-100])
    elif change == "no config":
        (head / "config.json").unlink()
    elif change in ("bad config", "no layers"):
        (head / "config.json").write_text("{" if change == "bad config" else "{}")
    text = refusal(load_drafter, target, "draft_model", {}, str(head), **PATHS)
    assert all(word in text for word in words if change in ("remove", "rename", "no map")) and str(head.parent) not in text


def test_a_pickled_head_is_refused_and_never_opened(target, head, tmp_path):
    (head / "model.safetensors").unlink()
    with open(head / "pytorch_model.bin", "wb") as out:
        pickle.dump(Bomb(tmp_path / "marker"), out)
    refusal(load_drafter, target, "draft_model", {}, str(head), **PATHS)
    assert not (tmp_path / "marker").exists()


# --- the default model, fetched as on a user's first start (kept in the user's cache)


@pytest.fixture(scope="module")
def default():
    return load_target("smollm2-135m", "cpu")


def test_the_default_model_answers(default):
    assert (default.vocab, default.context, default.dtype) == (49152, 8192, "float32")
    assert set(default.stop_ids) >= {2}
    ids = default.encode("What is the capital of France?", raw=False)
    text = default.tokenizer.decode(ids)
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    out = default.model.generate(torch.tensor([ids]), max_new_tokens=9, do_sample=False)[0, len(ids) :]
    assert default.tokenizer.decode(out) == "The capital of France is Paris.<|im_end|>"


def test_a_second_load_of_the_default_touches_no_network(default, monkeypatch):
    import socket

    def refuse(*args, **more):
        raise AssertionError("a network connection was tried")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(catalog, "_LOADED", catalog._Loaded(1))
    monkeypatch.setattr(catalog.sources.subprocess, "Popen", refuse)
    assert load_target("smollm2-135m", "cpu").name == "smollm2-135m"


def test_the_trained_draft_of_the_default_model_loads(default):
    folder = catalog.ROOT / "assets" / "heads" / "smollm2-135m" / "draft"
    if not folder.is_dir():
        assert "train it with" in refusal(load_drafter, default, "draft_model", {})
        return
    drafter = load_drafter(default, "draft_model", {"gamma": 5})
    assert drafter.gamma == 5 and drafter.model.context == default.context
    assert len(drafter.d2t.unique()) == len(drafter.d2t) <= default.vocab
    assert load_drafter(default, "draft_model", {}).model is drafter.model
