"""What may be loaded, what is refused and in which words; the default model as a user's first start gets it."""

import contextlib
import gc
import json
import math
import pickle
import shutil
import threading
import time
import weakref
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specviz import catalog, fetch, load, pace, specs
from specviz.catalog import CatalogError, load_drafter, load_target, targets
from specviz.drafters import DraftModel, Plain, knobs
from specviz.gguf_import import convert
from specviz.heads import draft as draft_head
from specviz.heads import files
from specviz.heads.medusa import Medusa
from specviz.toy import ToyTarget, random_table
from specviz.ui.traceview import table
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
            assert len({"hub", "package", "folder"} & source.keys()) == 1
            assert "package" not in source or ("==" in source["package"] and len(source["sha256"]) == 64)
        for method, named in spec.drafters.items():
            assert catalog.METHODS[method].needs in ("model", "head")
            assert ("target" in named) != ("head" in named)
            assert "target" not in named or (named["target"] in names and catalog.METHODS[method].needs == "model")
            wanted = {weights for knob in knobs(catalog.METHODS[method]) for weights in knob.heads.values()}
            assert named.keys() - {"target", "head"} <= wanted


def entry(**more):
    return {"label": "L", "note": {"en": "n", "zh": "n"}, "license": "MIT", "sources": [{"hub": "a/b"}], "drafters": {}} | more


def test_a_target_that_comes_with_the_project_is_offered_only_where_its_folder_is(tmp_path, tiny, monkeypatch):
    listed = {"default": "a", "targets": {"a": entry(), "own": entry(sources=[{"folder": "assets/models/own"}])}}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(listed))
    assert [one.name for one in targets(tmp_path)] == ["a"]
    shutil.copytree(tiny, tmp_path / "assets" / "models" / "own")
    own = targets(tmp_path)[1]
    monkeypatch.setattr(fetch, "ROOT", tmp_path)
    assert fetch.fetch("own", own.sources, tmp_path / "cache", lambda fraction, text: None) == tmp_path / "assets" / "models" / "own"
    assert not (tmp_path / "cache").exists()
    (tmp_path / "assets" / "models" / "own" / "model.safetensors").unlink()
    with pytest.raises(fetch.FetchError, match=r"assets/models/own, which comes with specviz, is not whole here; copy it again\.$"):
        fetch.fetch("own", own.sources, tmp_path / "cache", lambda fraction, text: None)


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
    known = {words.replace("{what}", "tiny.gguf") for key, words in table("en").items() if key.startswith("program.")}
    assert len(set(heard)) > 2 and set(heard) <= known, "the page translates what it hears by these words"
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


# --- heads: weights trained for a target


@dataclass
class Headed(Plain):
    """What the catalog must know of a method with a head, and no more."""

    head: Medusa = None
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes; 0 = automatic."})
    row_cost: float = 0.045

    name: ClassVar[str] = "headed"
    needs: ClassVar[str] = "head"

    @classmethod
    def load(cls, folder, target):
        return {"head": Medusa.from_files(folder, target)}


@dataclass
class Careful(DraftModel):
    """A draft model with a setting that needs weights of its own."""

    adaptive: str = field(
        default="constant", metadata={"choices": ["constant", "asked"], "heads": {"asked": "judge"}, "help": "asked: a judge decides."}
    )
    judge: tuple = ()

    @classmethod
    def load(cls, folder, model):
        return {"judge": (files.read(folder, f"the judge of {model.name}")[1]["weight"].shape[0], model.name)}


@dataclass
class Within(Plain):
    model: object = None

    name: ClassVar[str] = "within"
    needs: ClassVar[str] = "target"


@pytest.fixture
def methods(monkeypatch):
    for name, cls in {"headed": Headed, "draft_model": Careful, "within": Within}.items():
        monkeypatch.setitem(catalog.METHODS, name, cls)


@pytest.fixture
def weights(target, tmp_path) -> Path:
    head = Medusa(target.embedding.shape[1], heads=3, blocks=1)
    files.write(tmp_path / "heads" / "medusa", head.own_state(), {"kind": "medusa"})
    return tmp_path / "heads" / "medusa"


def test_a_folder_of_weights_is_read_once_for_each_loaded_target(methods, target, tiny, weights):
    first, second = (load_drafter(target, "headed", {"size": n}, str(weights), **PATHS) for n in (5, 6))
    assert first is not second and first.head is second.head and (first.size, second.size) == (5, 6)
    other = load_target(str(tiny), "cpu", "bfloat16", **PATHS)
    assert load_drafter(other, "headed", {}, str(weights), **PATHS).head.dtype == torch.bfloat16


def test_weights_go_when_their_target_goes(methods, tiny, weights):
    target = load.load(tiny, "passing", "cpu", "float32")
    gone = weakref.ref(load_drafter(target, "headed", {}, str(weights), **PATHS).head)
    model = weakref.ref(target.model)
    assert gone() is not None
    del target
    gc.collect()
    assert gone() is None and model() is None


def test_weights_that_models_yaml_names(methods, target, weights, monkeypatch):
    spec = specs.TargetSpec("tiny", "Tiny", {}, "", (), {"headed": {"head": "medusa"}})
    monkeypatch.setattr(catalog, "spec", lambda name: {"tiny": spec}.get(name))
    monkeypatch.setattr(catalog, "head_folder", lambda name, head: weights.parent / head)
    monkeypatch.setattr(specs, "head_folder", catalog.head_folder)
    assert load_drafter(target, "headed", {}).head and catalog.available(spec, "headed")
    assert catalog.weights_folder(target, "headed") == weights
    shutil.rmtree(weights)
    assert not catalog.available(spec, "headed") and catalog.available(spec, "within") and catalog.available(None, "prompt_lookup")
    assert "The folder medusa holds no trained weights of headed for tiny" in refusal(load_drafter, target, "headed", {})


def test_weights_are_found_or_refused_by_name(methods, target, weights, tiny):
    assert "No weights of headed are listed for tiny" in refusal(load_drafter, target, "headed", {})
    assert "is a model; headed needs a folder" in refusal(load_drafter, target, "headed", {}, "smollm2-135m", **PATHS)
    for name in ("/no/such/folder", str(weights / ".." / "medusa"), str(weights / "config.json"), "", None, "a\0b"):
        assert "There is no folder of weights" in refusal(load_drafter, target, "headed", {}, name, **PATHS)
    assert "There is no folder of weights" in refusal(load_drafter, target, "headed", {}, str(weights))
    assert "medusa heads for tiny" in refusal(load_drafter, target, "headed", {}, str(tiny), **PATHS)


@pytest.mark.parametrize("harm", ["cut", "rename", "shape", "config", "empty", "text", "pickle"])
def test_damaged_or_misfitting_weights_are_refused(methods, target, weights, tmp_path, harm):
    file = weights / "model.safetensors"
    tensors = load_file(file)
    name = "0.0.linear.weight"
    words = "medusa heads for tiny"
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-50])
    elif harm == "rename":
        tensors["0.0.linear.other"] = tensors.pop(name)
        save_file(tensors, file)
    elif harm == "shape":
        save_file(tensors | {name: tensors[name][:, :-1].contiguous()}, file)
        words = name
    elif harm == "config":
        (weights / "config.json").write_text("{")
    elif harm == "pickle":
        file.unlink()
        with open(weights / "pytorch_model.bin", "wb") as out:
            pickle.dump(Bomb(tmp_path / "marker"), out)
    else:
        file.write_bytes(b"" if harm == "empty" else b"not weights at all")
    text = refusal(load_drafter, target, "headed", {}, str(weights), **PATHS)
    assert words in text and str(weights.parent) not in text and not (tmp_path / "marker").exists()


def test_any_failure_inside_a_loader_is_one_sentence(methods, target, weights, monkeypatch):
    for error in (KeyError("x"), RuntimeError("/secret/path"), IndexError(), AttributeError("a"), EOFError(), pickle.UnpicklingError("b")):
        monkeypatch.setattr(Headed, "load", classmethod(lambda cls, folder, target, error=error: (_ for _ in ()).throw(error)))
        text = refusal(load_drafter, target, "headed", {}, str(weights), **PATHS)
        assert "weights of headed in medusa are damaged" in text and type(error).__name__ in text and "secret" not in text


def test_a_method_of_the_target_itself_gets_it(methods, target):
    assert load_drafter(target, "within", {}).model is target


def test_a_setting_may_need_weights_of_its_own(methods, target, head, weights):
    assert load_drafter(target, "draft_model", {}, str(head), **PATHS).judge == ()
    text = refusal(load_drafter, target, "draft_model", {"adaptive": "asked"}, str(head), **PATHS)
    assert "draft_model with adaptive asked needs the trained weights judge" in text
    files.write(head.parent / "judge", {"weight": torch.zeros(3)}, {})
    assert load_drafter(target, "draft_model", {"adaptive": "asked"}, str(head), **PATHS).judge == (3, "tiny draft")
    (head.parent / "judge" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CatalogError, match="judge of tiny draft are damaged"):
        catalog._WITH.values.pop(target.model)
        load_drafter(target, "draft_model", {"adaptive": "asked"}, str(head), **PATHS)


@dataclass
class Growing(Headed):
    draft_cost: float = 0.2


def test_costs_are_measured_once_and_only_where_they_decide(methods, target, weights, monkeypatch):
    calls = []
    monkeypatch.setitem(catalog.METHODS, "growing", Growing)
    monkeypatch.setattr(pace, "rows", lambda target, halted: calls.append("rows") or {1: 1.0, 5: 1.5})
    monkeypatch.setattr(pace, "draft_cost", lambda target, drafter, seconds, halted: calls.append(drafter.row_cost) or 0.5)
    catalog._WITH.values.pop(target.model, None)
    fixed = load_drafter(target, "growing", {"size": 8}, str(weights), **PATHS)
    assert (fixed.row_cost, fixed.draft_cost) == (0.045, 0.2) and not calls
    assert load_drafter(target, "headed", {}, str(weights), **PATHS).row_cost == 0.125
    grown = [load_drafter(target, "growing", {}, str(weights), **PATHS) for _ in range(2)]
    assert [(one.row_cost, one.draft_cost) for one in grown] == [(0.125, 0.5)] * 2
    assert calls == ["rows", 0.125]
    catalog._WITH.values.pop(target.model)


def test_measuring_ends_where_whoever_asked_has_gone(methods, target, weights, monkeypatch):
    class Gone(Exception):
        pass

    said = []

    def leave_at(number: int, fraction: float, sentence: str) -> None:
        said.append(sentence)
        if said.count("Measuring what a row costs here") == number:
            raise Gone

    monkeypatch.setitem(catalog.METHODS, "growing", Growing)
    catalog._WITH.values.pop(target.model, None)
    for number in (2, 7):  # in the middle of the rows, then of the draft passes
        said.clear()
        with pytest.raises(Gone):
            load_drafter(target, "growing", {}, str(weights), partial(leave_at, number), **PATHS)
    assert load_drafter(target, "growing", {}, str(weights), **PATHS).row_cost > 0  # and another one is not the worse for it
    catalog._WITH.values.pop(target.model)


def test_a_pass_is_timed_behind_its_like():
    """Behind a much larger one, a pass of one row took a tenth longer than in a run, and every v(n) was told too low."""
    sizes = []
    session = SimpleNamespace(
        prefill=lambda ids: None, rewind=lambda length: None, forward=lambda tokens, parents: sizes.append(len(tokens)) or time.sleep(1e-4)
    )
    found = pace.rows(SimpleNamespace(context=64, device="cpu", session=lambda capacity: session), (1, 9), repeats=2)
    assert sizes == [1, 1, 1, 9, 9, 9] * 3 and found.keys() == {1, 9} and min(found.values()) >= 1e-4
    assert pace.rows(SimpleNamespace(context=64, device="cpu", session=lambda capacity: session), halted=lambda: True) == {}


def test_the_slope_goes_through_one_row():
    assert pace.row_cost({1: 2.0}) == pace.USUAL
    assert pace.row_cost({1: 2.0, 5: 2.4, 9: 2.8, 17: 3.6}) == pytest.approx(0.05)
    assert pace.row_cost({1: 1.0, 5: 1.0, 9: 0.9, 17: 1.0}) == 0.005 and pace.row_cost({1: 1.0, 5: 50, 9: 90, 17: 170}) == 1.0
    assert pace.row_cost({}) == pace.USUAL


def test_small_differences_of_a_cost_are_none():
    assert pace.stepped(0.25) == pace.stepped(0.27) == pace.stepped(0.23) == 0.25
    assert pace.stepped(0.0) == 1 / 128 and pace.stepped(99) == 2


def test_costs_can_be_measured_on_any_target(target):
    seconds = pace.rows(target, context=16, repeats=2)
    assert seconds.keys() == set(pace.ROWS) and all(value > 0 for value in seconds.values()) and 0.005 <= pace.row_cost(seconds) <= 1
    assert pace.rows(ToyTarget(random_table(5, 1, 0), context=10)).keys() == {1, 5, 9}, "what is too large for its context is left out"
    assert pace.rows(ToyTarget(random_table(5, 1, 0), context=1)) == {}
    assert pace.draft_cost(target, DraftModel.tiny(target), seconds) in [pace.stepped(2 ** (n / 2)) for n in range(-14, 3)]
    assert pace.draft_cost(target, Plain(), seconds) is None
    assert pace.draft_cost(ToyTarget(random_table(5, 1, 0), context=10), Plain(), {}) is None


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
    monkeypatch.setattr(catalog, "_LOADED", catalog.Latest(1))
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
