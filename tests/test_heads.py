"""Trained heads: what they compute, what their files hold, and that files which do not fit are refused in words."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.heads import files
from specviz.heads.eagle import Eagle
from specviz.heads.eagle3 import Eagle3
from specviz.heads.medusa import Medusa
from specviz.heads.mtp import Mtp
from specviz.heads.recurrent import facts_of
from specviz.heads.specdec import Acceptance
from specviz.session import ModelError
from specviz.toy import ToyTarget, random_table
from specviz.train.recurrent import unroll
from tests.tinymodels import VOCAB, tiny

TOY = ToyTarget(random_table(6, 1, seed=1))
RECURRENT = (Eagle, Eagle3, Mtp)
KEPT = torch.tensor([1, 2, 5, 9, 40])


def features_of(head, count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    width = head.embedding.shape[1]
    return head.features({tap: torch.randn(count, width, generator=generator) for tap in head.taps(tiny("llama").config)})


@pytest.mark.parametrize("cls", RECURRENT)
def test_a_step_behind_a_cache_gives_what_one_long_step_gives(cls):
    head = cls.tiny(tiny("llama"))
    tokens, features, at = torch.arange(3, 10), features_of(head, 7), torch.arange(7)
    whole, logits = head.step(tokens, features, at, None, head.begin(16))
    cache = head.begin(4)  # grows
    head.step(tokens[:3], features[:3], at[:3], None, cache)
    head.step(tokens[3:5] + 1, features[3:5], at[3:5], None, cache)  # forgotten again
    cache.rewind(3)
    out, last = head.step(tokens[3:], features[3:], at[3:], None, cache, wanted=1)
    assert torch.allclose(out, whole[3:], atol=1e-5) and torch.allclose(last, logits[-1:], atol=1e-5)
    assert cache.length == 7 and last.shape == (1, VOCAB)


@pytest.mark.parametrize("cls", RECURRENT)
def test_each_slot_of_a_tree_sees_its_own_path(cls):
    head = cls.tiny(tiny("llama"))
    features = features_of(head, 6)
    cache = head.begin(16)
    head.step(torch.tensor([3, 4]), features[:2], torch.arange(2), None, cache)
    # two branches of two slots behind two real ones
    seen = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.bool)
    tokens, at = torch.tensor([5, 6, 7, 8]), torch.tensor([2, 2, 3, 3])
    out, _ = head.step(tokens, features[2:6], at, seen, cache)
    for branch in ([0, 2], [1, 3]):
        cache.rewind(2)
        alone, _ = head.step(tokens[branch], features[2:6][branch], at[branch], None, cache)
        assert torch.allclose(out[branch], alone, atol=1e-5)


@pytest.mark.parametrize("cls", RECURRENT)
def test_what_is_trained_is_what_drafts(cls):
    """Unrolled over a text, step j at slot i is a chain that left the real features j slots before."""
    head = cls.tiny(tiny("llama"))
    tokens, features = torch.arange(3, 10), features_of(head, 7)
    steps = [out[0] for out in unroll(head, tokens[None], features[None], 3)]
    for end in (3, 6):  # the chain's last slot
        for j in range(3):
            cache = head.begin(16)
            real = end - j + 1
            out, _ = head.step(tokens[:real], features[:real], torch.arange(real), None, cache)
            for slot in range(real, end + 1):
                out, _ = head.step(tokens[slot : slot + 1], out[-1:], torch.tensor([slot]), None, cache)
            assert torch.allclose(steps[j][end], out[-1], atol=1e-4)


@pytest.mark.parametrize("cls", RECURRENT)
@pytest.mark.parametrize("d2t", [None, KEPT])
def test_a_head_survives_the_disk(cls, d2t, tmp_path):
    target = tiny("llama")
    made = cls(cls.tiny(target).config, target.embedding.detach(), d2t)  # not packed
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    files.write(tmp_path, made.own_state(), facts_of(made.config))
    again = cls.from_files(tmp_path, target)
    stored = load_file(tmp_path / "model.safetensors")
    assert all(t.dtype == torch.float16 for t in stored.values() if t.is_floating_point())
    assert (again.d2t is None) == (d2t is None) and (d2t is None or torch.equal(again.d2t, d2t))
    made.share(target.head)
    features = features_of(made, 3)
    want = made.half().float().step(torch.tensor([1, 2, 3]), features, torch.arange(3), None, made.begin(4))
    got = again.step(torch.tensor([1, 2, 3]), features_of(again, 3), torch.arange(3), None, again.begin(4))
    assert all(torch.allclose(a, b, atol=2e-2, rtol=2e-2) for a, b in zip(want, got, strict=True))


def test_published_spellings_are_read(tmp_path):
    """Prefixes, names of the layer, tensors that repeat the target's, and a wrong number in config.json."""
    target = tiny("llama")
    for cls, spell in (
        (Eagle3, lambda key: "model." + key.replace("midlayer.", "layers.0.")),
        (Eagle, lambda key: "model." + key),
        (Mtp, lambda key: key.replace("layers.0.", "layers.61.")),
    ):
        made = cls(cls.tiny(target).config, target.embedding.detach(), KEPT)
        state = {spell(k) if k not in ("d2t", "t2d") else k: v.contiguous() for k, v in made.own_state().items()}
        extra = {"embed_tokens.weight": target.embedding.detach().clone()} if cls is not Mtp else {}
        if cls is Mtp:
            extra = {"model.layers.61.shared_head.head.weight": target.head.detach().clone()}
        save_file({**state, **extra}, tmp_path / "model.safetensors")
        wrong = facts_of(made.config) | {"num_key_value_heads": 7, "intermediate_size": 3, "num_hidden_layers": 36}
        (tmp_path / "config.json").write_text(json.dumps(wrong))
        head = cls.from_files(tmp_path, target)
        assert head.config.num_key_value_heads == made.config.num_key_value_heads and torch.equal(head.d2t, KEPT)


def test_eagle3_files_hold_both_maps_as_published():
    target = tiny("llama")
    state = Eagle3(Eagle3.tiny(target).config, target.embedding.detach(), KEPT).own_state()
    assert state["d2t"].tolist() == [1, 1, 3, 6, 36] and state["t2d"].nonzero()[:, 0].tolist() == KEPT.tolist()


@pytest.mark.parametrize(
    "damage, sentence",
    [
        (lambda t, c: t.pop("fc.weight"), "missing fc.weight"),
        (lambda t, c: t.update(more=torch.zeros(2)), "unexpected more"),
        (lambda t, c: t.update({"fc.weight": torch.zeros(3, 3)}), "is \\[3, 3\\]"),
        (lambda t, c: t.update(d2t=torch.tensor([1, 0])), "twice to one token"),
        (lambda t, c: t.update(d2t=torch.tensor([5, VOCAB])), "outside"),
        (lambda t, c: t.update(d2t=torch.tensor([0.5])), "whole numbers"),
        (lambda t, c: c.update(kind="draft"), "of the kind 'draft'"),
        (lambda t, c: c.pop("num_attention_heads"), "num_attention_heads"),
        (lambda t, c: c.update(num_attention_heads=7), "7 attention heads"),
        (lambda t, c: t.pop("layers.0.self_attn.q_proj.weight"), "q_proj"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(damage, sentence, tmp_path):
    target = tiny("llama")
    made = Eagle(Eagle.tiny(target).config, target.embedding.detach(), KEPT)
    tensors, config = {k: v.contiguous() for k, v in made.own_state().items()}, facts_of(made.config)
    damage(tensors, config)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=sentence):
        Eagle.from_files(tmp_path, target)


def test_files_that_are_no_weights_are_refused(tmp_path):
    target = tiny("llama")
    with pytest.raises(ModelError, match="holds none of"):
        Eagle.from_files(tmp_path, target)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")  # a pickle that would run something
    with pytest.raises(ModelError, match="damaged"):
        Eagle.from_files(tmp_path, target)
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="table of tensors"):
        Eagle.from_files(tmp_path, target)
    other = Eagle(Eagle.tiny(TOY).config, TOY.embedding.float())  # 8 wide, for a target of 32
    torch.save(other.own_state(), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(facts_of(other.config)))
    with pytest.raises(ModelError, match="8 wide"):
        Eagle.from_files(tmp_path, target)


@pytest.mark.parametrize("own", [None, (len(KEPT),)])
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
def test_medusa_heads_survive_the_disk(own, prefix, tmp_path):
    target = tiny("llama")
    made = Medusa(32, heads=3, blocks=2, d2t=KEPT, own=own)
    state = {prefix + k if k != "d2t" else k: v.contiguous() for k, v in made.own_state().items()}
    save_file(state, tmp_path / "medusa_lm_head.safetensors")
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}')  # as published: wrong
    again = Medusa.from_files(tmp_path, target)
    made.share(target.head)
    x = torch.randn(4, 32)
    assert again(x).shape == (4, 3, len(KEPT)) and torch.allclose(again(x), made(x), atol=1e-4)


def test_a_medusa_head_reads_one_hidden_state_and_nothing_else():
    heads = Medusa.tiny(tiny("llama"), heads=2)
    x = torch.randn(5, 32)
    assert torch.allclose(heads(x)[3], heads(x[3:4])[0], atol=1e-5)


def test_other_weights_are_no_medusa_heads(tmp_path):
    save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="not Medusa heads"):
        Medusa.from_files(tmp_path, tiny("llama"))


def test_the_acceptance_head_survives_the_disk(tmp_path):
    made = Acceptance.tiny(32)
    files.write(tmp_path, made.state_dict(), {})
    again = Acceptance.from_files(tmp_path, tiny("llama"), 32)
    x = torch.randn(6, 32)
    assert torch.allclose(made(x), again(x), atol=1e-2) and bool(((made(x) > 0) & (made(x) < 1)).all())
    with pytest.raises(ModelError, match="do not fit"):
        Acceptance.from_files(tmp_path, tiny("llama"), 16)


@pytest.mark.parametrize("layers, taps", [(30, (2, 15, 27)), (61, (2, 30, 58)), (7, (2, 3, 4)), (6, (0, 3, 6)), (2, (0, 1, 2))])
def test_eagle3_reads_three_layers_of_any_target(layers, taps):
    assert Eagle3.taps(SimpleNamespace(num_hidden_layers=layers)) == taps
