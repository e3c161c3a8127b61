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


@pytest.mark.parametrize("kind", CONFIGS)
@torch.inference_mode()
def test_folded_heads_attend_as_the_stock_ones_do(kind):
    """Behind a cache, for a tree of rows, through windows; and without a mask, as the library itself calls a model."""
    target = tiny(kind)
    shares = getattr(target.config, "num_key_value_heads", 4) < target.config.num_attention_heads
    assert (target.model.config._attn_implementation == cpu.FOLDED) == shares == ("folded heads" in target.kernels)
    rows = [5, 9, 7, 3, 9, 1], (-1, 0, 0, 1, 2, 4)
    found = {}
    for kernel in (target.model.config._attn_implementation, "eager", "sdpa"):
        target.model.set_attn_implementation(kernel)
        session = target.session(32)
        session.prefill(list(range(20)))
        found[kernel] = session.forward(*rows).logits, target.model(torch.arange(17)[None], use_cache=False).logits
    target.model.set_attn_implementation(next(iter(found)))
    for kernel in ("eager", "sdpa"):
        for ours, theirs in zip(found[target.model.config._attn_implementation], found[kernel], strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_heads_with_masks_or_biases_of_their_own_are_not_folded():
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(1, heads, rows, 8, generator=generator) for heads, rows in ((4, 3), (2, 5), (2, 5)))
    module = nn.Module()
    module.num_key_value_groups = 2
    mask = torch.randn(1, 4, 3, 5, generator=generator)
    want = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(cpu.folded(module, query, key, value, mask, scaling=0.3)[0], want)
    biased = cpu.folded(module, query, key, value, torch.zeros(1, 1, 3, 5), scaling=0.3, position_bias=mask)[0]
    torch.testing.assert_close(biased, want)


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
