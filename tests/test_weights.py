"""What a drafter adds is counted once, without what is the target's; facts of trained weights are read without being believed."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import pytest
import torch
from torch import nn

from specviz.backend.cpu import pack
from specviz.drafters import METHODS
from specviz.weights import Extra, extra, trained
from tests.tinymodels import tiny, tiny_model


@dataclasses.dataclass
class Held:
    one: Any = None
    two: Any = None


def test_shared_weights_are_the_targets_and_each_tensor_counts_once():
    target = tiny("llama")
    layer = nn.Linear(5, 7)
    assert extra(Held(layer, layer), target) == Extra(42, 168)
    assert extra(Held(Held(layer), [nn.Linear(3, 2, bias=False)]), target) == Extra(48, 192)
    assert extra(Held(target, target.model), target) == Extra(0, 0)
    assert extra(METHODS["plain"](), target) == Extra(0, 0)


def test_a_layer_that_reads_the_targets_embedding_adds_only_its_own():
    target = tiny("llama")
    model = tiny_model("llama", seed=3)
    whole = sum(p.numel() for p in model.parameters())
    model.set_input_embeddings(target.model.get_input_embeddings())
    model.get_output_embeddings().weight = nn.Parameter(torch.randn(64, 32))
    assert extra(Held(model), target).parameters == whole - 64 * 32 + (64 * 32 if model.config.tie_word_embeddings else 0)


def test_packed_layers_count_as_before_packing():
    target, plain = tiny("llama"), nn.Sequential(nn.Linear(48, 64), nn.Linear(64, 48, bias=False))
    before = extra(Held(plain), target)
    pack(plain)
    assert extra(Held(plain), target) == before == Extra(48 * 64 + 64 + 64 * 48, 4 * (48 * 64 + 64 + 64 * 48))


def test_makers_are_looked_into():
    target = tiny("llama")
    maker = functools.partial(Held, one=nn.Linear(4, 4, bias=False))
    assert extra(Held(functools.partial(Held, maker)), target) == Extra(16, 64)


def test_drafters_with_weights_add_some_and_the_others_none():
    target = tiny("llama")
    for name, method in METHODS.items():
        drafter = method.tiny(target)
        assert drafter.source is not None
        assert (extra(drafter, target).parameters > 0) == (method.needs in ("model", "head")), name


def folder(tmp_path, facts):
    (tmp_path / "model.safetensors").write_bytes(b"x" * 12)
    (tmp_path / "config.json").write_text(facts if isinstance(facts, str) else json.dumps(facts))
    return tmp_path


def test_facts_of_training(tmp_path):
    facts = {"parameters": 9, "answer_tokens": 70, "conversations": 3, "commands": ["first", "second"]}
    facts["held_out"] = {"own": {"agree": [0.5, 0.3]}, "text": {"agree": 0.4}}
    assert trained(folder(tmp_path, facts)) == {
        "bytes": 12,
        "parameters": 9,
        "answer_tokens": 70,
        "conversations": 3,
        "agree": 0.5,
        "command": "second",
    }
    assert trained(folder(tmp_path, {"held_out": {"own": None, "text": {"agree": 0.4}}})) == {"bytes": 12, "agree": 0.4}


@pytest.mark.parametrize(
    "facts",
    [
        "[]",
        "7",
        {"parameters": "many", "answer_tokens": -1, "conversations": True, "commands": 5, "held_out": []},
        {"held_out": {"own": {"agree": 7.5}, "text": 3}, "commands": [None]},
        {"held_out": {"own": {"agree": []}}, "commands": []},
    ],
)
def test_facts_that_are_none_are_left_out(tmp_path, facts):
    assert trained(folder(tmp_path, facts)) == {"bytes": 12}


def test_no_folder_no_facts(tmp_path):
    assert trained(tmp_path / "none") is None
    assert trained(folder(tmp_path, "{")) is None
