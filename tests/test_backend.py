"""Faster kernels give the stock result, and where they cannot, the stock modules stay."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from specviz import backend
from specviz.backend import cpu
from tests.tinymodels import CONFIGS, tiny


def linear(rows: int, columns: int, bias: bool) -> nn.Linear:
    generator = torch.Generator().manual_seed(rows + columns)
    made = nn.Linear(columns, rows, bias=bias)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return made.requires_grad_(False)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(48, 32), (33, 7), (1, 5), (200, 96)])
@torch.inference_mode()
def test_packed_is_stock(shape, bias):
    stock = linear(*shape, bias)
    model = nn.Sequential(copy.deepcopy(stock))
    assert cpu.pack(model) == "packed matmuls (1)" and isinstance(model[0], cpu.PackedLinear)
    for rows in (1, 2, 5, 17, 64):
        x = torch.randn(1, rows, shape[1], generator=torch.Generator().manual_seed(rows))
        torch.testing.assert_close(model(x), stock(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
@torch.inference_mode()
def test_a_packed_model_computes_what_the_stock_one_does(kind):
    from transformers import AutoModelForCausalLM

    packed = tiny(kind).model
    stock = AutoModelForCausalLM.from_config(packed.config, dtype=torch.float32).eval()
    state = dict(packed.state_dict())
    for name, module in packed.named_modules():  # the packed layout is no parameter
        if isinstance(module, cpu.PackedLinear):
            state[f"{name}.weight"] = module.packed.to_dense()
            if module.bias is not None:
                state[f"{name}.bias"] = module.bias
    missing, unexpected = stock.load_state_dict(state, strict=False)
    assert not unexpected and not missing
    ids = torch.arange(17)[None] * 5 % 64
    torch.testing.assert_close(packed(ids).logits, stock(ids).logits, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_tied_head_keeps_its_embedding():
    target = tiny("llama", tie_word_embeddings=True)
    head, embedding = target.model.get_output_embeddings(), target.model.get_input_embeddings().weight
    assert isinstance(head, cpu.PackedLinear)
    x = torch.randn(1, 5, 32)
    torch.testing.assert_close(head(x), x @ embedding.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_are_left_alone(dtype):
    model = nn.Sequential(nn.Linear(8, 8).to(dtype))
    assert cpu.pack(model) == "stock kernels" and type(model[0]) is nn.Linear


def test_subclasses_and_other_layers_are_left_alone():
    class Special(nn.Linear):
        pass

    model = nn.Sequential(Special(4, 4), nn.Embedding(4, 4), nn.LayerNorm(4))
    assert cpu.pack(model) == "stock kernels" and type(model[0]) is Special


def test_without_the_operator_the_stock_modules_stay(monkeypatch):
    def missing(self, linear):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'")

    monkeypatch.setattr(cpu.PackedLinear, "__init__", missing)
    model = nn.Sequential(nn.Linear(4, 4))
    assert cpu.pack(model) == "stock kernels (no packed matmul here)" and type(model[0]) is nn.Linear


def test_an_operator_that_computes_something_else_is_not_used(monkeypatch):
    forward = cpu.PackedLinear.forward
    monkeypatch.setattr(cpu.PackedLinear, "forward", lambda self, x: forward(self, x) * (1 + 1e-3 * (x.shape[-2] > 1)))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert cpu.pack(model) == "stock kernels" and all(type(layer) is nn.Linear for layer in model)


def test_an_operator_that_makes_no_numbers_is_not_used(monkeypatch):
    forward = cpu.PackedLinear.forward
    monkeypatch.setattr(cpu.PackedLinear, "forward", lambda self, x: forward(self, x) * float("nan"))
    model = nn.Sequential(nn.Linear(4, 4))
    assert cpu.pack(model) == "stock kernels"


def test_each_device_has_its_own():
    model = nn.Sequential(nn.Linear(4, 4))
    assert backend.prepare(model, "cuda:0") == "stock kernels" == backend.prepare(model, "mps:0")
    assert backend.prepare(model, "cpu").startswith("packed")
