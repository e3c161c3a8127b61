"""The cache and the masks: whatever was drafted and dropped, rows equal those of a fresh prefill, and every node sees its own path."""

from __future__ import annotations

import pytest
import torch

from specviz.decode import Limits, decode
from specviz.drafters import DraftModel
from specviz.sampling import Sampling
from specviz.session import PREFILL_ROWS, BufferLayer, ModelError, Target
from specviz.tree import chain, tree
from tests.tinymodels import CONFIGS, WINDOWED, Letters, Watched, prompt_ids, tiny
from tests.treedrafters import PartlyRight, TreeDrafter

KINDS = tuple(CONFIGS)


def assert_fresh(session, ids) -> None:
    """Every row of `session` is what a prefill of `ids` makes."""
    fresh = session.target.session(len(ids) + 1)
    fresh.prefill([*ids[: session.length], 0])
    assert fresh.length == session.length
    for ours, theirs in zip(session.layers, fresh.layers, strict=True):
        assert ours.length == session.length
        for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
            torch.testing.assert_close(mine[:, :, : session.length], other[:, :, : session.length], atol=1e-5, rtol=1e-5)


def rounds(target: Watched, drafter, ids, sampling, max_new):
    """(ids so far, iteration) after every round but one that a stop has cut."""
    header, *_ = [next(records := decode(target, drafter, "", sampling, Limits(max_new), prompt_ids=ids))]
    ids = list(header.prompt_ids)
    for it in records:
        ids += it.emitted
        if not it.discarded:
            yield ids, it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree_kind", ["chain", "fixed", "replace", "without"])
@torch.inference_mode()
def test_rows_after_every_round_are_those_of_a_fresh_prefill(kind, tree_kind):
    target, model = Watched(tiny(kind)), tiny(kind, noise=0.1)
    drafter = DraftModel(model, gamma=4, confidence=0.0) if tree_kind == "chain" else TreeDrafter(model, (3, 2, 2), tree_kind)
    taken = set()
    for ids, it in rounds(target, drafter, prompt_ids(14), Sampling(temperature=1.0, seed=3), 24):
        assert target.sessions[0].length == len(ids) - 1
        assert_fresh(target.sessions[0], ids)
        taken.add(tuple(it.path))
    assert len(taken) > 2, "the rounds must differ for this to show anything"
    if tree_kind != "chain":
        assert any(list(path) != list(range(len(path))) for path in taken), "rows must have been moved"


@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
@torch.inference_mode()
def test_rows_after_rejections_at_each_place(right):
    target, ids = Watched(tiny("qwen3")), prompt_ids(10)
    answer = [token for _, it in rounds(target, PartlyRight([], 10, 64, 1, 1), ids, Sampling(), 30) for token in it.emitted]
    target.sessions.clear()
    for so_far, _ in rounds(target, PartlyRight(answer, 10, 64, right, 5), ids, Sampling(), 30):
        assert_fresh(target.sessions[0], so_far)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize("adaptive", ["constant", "heuristic"])
@torch.inference_mode()
def test_the_drafts_own_cache(kind, adaptive):
    draft, kinds = Watched(tiny(kind, noise=0.2)), set()
    for seed in range(4):
        drafter = DraftModel(draft, gamma=2, adaptive=adaptive, confidence=0.0)
        for ids, it in rounds(Watched(tiny(kind)), drafter, prompt_ids(9), Sampling(temperature=1.0, seed=seed), 30):
            session = draft.sessions[seed]
            # all accepted: the last drafted token was never read, so the next round feeds two
            whole = len(it.path) == len(it.nodes)
            if it.nodes:
                assert session.length == len(ids) - (2 if whole else 1)
                kinds.add((whole, len(it.path) == 0))
            assert_fresh(session, ids)
            if not it.reason:
                assert it.note["gamma"] == len(it.nodes)
    assert kinds >= {(True, False), (False, True)}, "full acceptance and rejection at once must both occur"


@torch.inference_mode()
def test_a_twins_cache_grows_with_the_draft_length():
    twin, lengths = Watched(tiny("llama")), []
    for ids, it in rounds(
        Watched(tiny("llama")), DraftModel(twin, gamma=1, adaptive="heuristic", confidence=0.0), prompt_ids(5), Sampling(), 80
    ):
        lengths.append(len(it.nodes))
        assert len(it.path) == len(it.nodes), "a twin is always right"
        assert_fresh(twin.sessions[0], ids)
    assert lengths[:5] == [1, 3, 5, 7, 9]


# --- the mask of a tree


def on_its_own_path(target: Target, ids, draft, node: int) -> torch.Tensor:
    """Logits of one node, computed by the library alone: no cache, no mask of ours, one sequence."""
    sequence = torch.tensor([[*ids, *draft.tokens[draft.path(node)].tolist()]])
    return target.model(input_ids=sequence, use_cache=False).logits[0, -1]


def random_parents(size: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(torch.randint(-1, i, (1,), generator=generator)) if i else -1 for i in range(size)]


TREES = {
    "random": lambda: random_parents(9, 1),
    "random, other": lambda: random_parents(12, 2),
    "path": lambda: list(range(-1, 5)),
    "one node": lambda: [-1],
    "no node": lambda: [],
    "siblings": lambda: [-1, -1, -1, 1, 1, 0],
    "deep beside wide": lambda: [-1, 0, 1, 2, 3, -1, -1, 5],
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", TREES)
@torch.inference_mode()
def test_every_node_sees_its_own_path_and_nothing_else(kind, attention, shape):
    target = tiny(kind, attention=attention)
    parents = TREES[shape]()
    tokens = prompt_ids(len(parents), seed=7)
    if len(tokens) > 2 and parents[1] == parents[0]:
        tokens[1] = tokens[0]  # siblings that are the same token
    draft = tree(tokens, parents)
    for length in (1, 5, 30):  # before, across and past the sliding window of 8
        ids = prompt_ids(length, seed=length)
        session = target.session(length)
        session.prefill(ids)
        logits = session.score(ids[-1], draft).logits
        assert logits.shape == (len(parents) + 1, target.vocab)
        for node in range(-1, len(parents)):
            torch.testing.assert_close(logits[node + 1], on_its_own_path(target, ids, draft, node), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", WINDOWED)
@torch.inference_mode()
def test_a_window_counted_in_rows_would_be_noticed(kind, monkeypatch):
    """Siblings share a position. The check above must be able to see the difference."""
    from specviz.session import Session

    masks = Session._masks
    monkeypatch.setattr(
        Session, "_masks", lambda self, parents, positions: masks(self, parents, torch.arange(len(parents))[None] + self._past)
    )
    target, ids, draft = tiny(kind), prompt_ids(12), tree(prompt_ids(8, seed=3), [-1] * 8)
    session = target.session(40)
    session.prefill(ids)
    logits = session.score(ids[-1], draft).logits
    assert float((logits[8] - on_its_own_path(target, ids, draft, 7)).abs().max()) > 1e-3


@torch.inference_mode()
def test_one_sliding_layer_alone():
    target = tiny("gemma3", num_hidden_layers=1, layer_types=("sliding_attention",))
    ids, draft = prompt_ids(20), tree(prompt_ids(5, seed=2), [-1, 0, -1, 2, 2])
    session = target.session(4)
    session.prefill(ids)
    logits = session.score(ids[-1], draft).logits
    for node in range(-1, 5):
        torch.testing.assert_close(logits[node + 1], on_its_own_path(target, ids, draft, node), atol=2e-4, rtol=1e-4)


# --- the buffer


@torch.inference_mode()
def test_a_long_prompt_is_read_in_pieces_that_change_nothing(monkeypatch):
    target = tiny("gemma3")
    ids = prompt_ids(61)
    whole = target.session(1)  # also: a buffer that has to grow
    whole.prefill(ids)
    assert whole.length == 60 <= PREFILL_ROWS
    monkeypatch.setattr("specviz.session.PREFILL_ROWS", 7)
    parts = target.session(100, taps=(0, 1, 2))
    hidden = parts.prefill(ids)
    assert_fresh(parts, ids)
    for ours, theirs in zip(parts.layers, whole.layers, strict=True):
        torch.testing.assert_close(ours.keys[:, :, :60], theirs.keys[:, :, :60], atol=1e-5, rtol=1e-5)
    want = target.model(input_ids=torch.tensor([ids[:-1]]), use_cache=False, output_hidden_states=True).hidden_states
    assert hidden.keys() == {0, 1, 2}
    for tap, rows in hidden.items():
        torch.testing.assert_close(rows, want[tap][0], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_taps_of_a_tree():
    target, ids, draft = tiny("llama"), prompt_ids(6), tree([1, 2, 3], [-1, -1, 0])
    session = target.session(20, taps=(1, 2))
    assert session.prefill(ids)[1].shape == (5, 32)
    scores = session.score(ids[-1], draft)
    want = target.model(input_ids=torch.tensor([[*ids, 1, 3]]), use_cache=False, output_hidden_states=True).hidden_states
    for tap in (1, 2):
        assert scores.hidden[tap].shape == (4, 32)
        torch.testing.assert_close(scores.hidden[tap][3], want[tap][0, -1], atol=1e-5, rtol=1e-4)
    assert target.session(4, taps=(1,)).prefill([3])[1].shape == (0, 32)


def test_rows_that_are_moved_onto_each_other():
    layer = BufferLayer(6)
    rows = torch.arange(12.0).reshape(1, 1, 6, 2)
    layer.update(rows, -rows)
    layer.keep(2, torch.tensor([3, 4, 5]), 5)
    assert layer.get_seq_length() == 5 and layer.keys[0, 0, :5, 0].tolist() == [0, 2, 6, 8, 10]
    assert layer.values[0, 0, :5, 0].tolist() == [0, -2, -6, -8, -10]
    layer.keep(0, None, 1)
    more = torch.full((1, 1, 9, 2), 7.0)
    keys, _ = layer.update(more, more)
    assert keys[0, 0, :, 0].tolist() == [0] + [7] * 9 and layer.capacity >= 10


@torch.inference_mode()
def test_rewinding_before_anything_was_read_and_past_the_end():
    session = tiny("llama").session(3)
    session.rewind(5)
    assert session.length == 0
    session.prefill(prompt_ids(4))
    session.rewind(9)
    assert session.length == 3
    session.forward([1], (-1,))
    session.commit([])
    assert session.length == 4
    session.rewind(0)
    logits = session.score(5, chain([6])).logits
    torch.testing.assert_close(
        logits[1], tiny("llama").model(input_ids=torch.tensor([[5, 6]]), use_cache=False).logits[0, -1], atol=1e-4, rtol=1e-4
    )


# --- models whose cache cannot be rewound


def stateful():
    import transformers as t

    shape = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    return {
        "mamba": lambda: t.MambaConfig(**shape),
        "qwen3-next": lambda: t.Qwen3NextConfig(
            **shape, **heads, **linear, **experts, head_dim=16, layer_types=["linear_attention", "full_attention"]
        ),
        "qwen3.5": lambda: t.Qwen3_5TextConfig(**shape, **heads, **linear, head_dim=16, layer_types=["linear_attention", "full_attention"]),
        "lfm2": lambda: t.Lfm2Config(**shape, **heads, layer_types=["conv", "full_attention"]),
        "recurrent-gemma": lambda: t.RecurrentGemmaConfig(**{**shape, "num_hidden_layers": 3}, **heads, lru_width=32),
    }


@pytest.mark.parametrize("name", stateful())
def test_a_model_that_cannot_be_rewound_is_refused_at_once(name):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(stateful()[name]())
    with pytest.raises(ModelError) as refused:
        Target(name, model, Letters())
    text = str(refused.value)
    assert name in text and "cannot be rewound" in text and text.endswith(".") and "\n" not in text


def test_an_encoder_decoder_is_refused():
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    with pytest.raises(ModelError, match="encoder-decoder"):
        Target("t5", model, Letters())
