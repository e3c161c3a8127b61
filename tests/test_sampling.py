"""Settings -> laws: those of the library's own generate(), each row on its own prefix, and tokens drawn from them without a slip."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import GenerationConfig

from specviz.decode import Limits
from specviz.drafters import Plain, PromptLookup
from specviz.laws import Laws
from specviz.sampling import Sampling
from specviz.session import Target
from specviz.toy import ToyTarget, random_table
from specviz.tree import chain, tree
from specviz.verify import SeededCoins, pick
from tests.tinymodels import VOCAB, Watched, emitted, prompt_ids, run, tiny

SETTINGS = {
    "T": Sampling(temperature=0.7),
    "top-k": Sampling(temperature=1.0, top_k=5),
    "top-p": Sampling(temperature=1.0, top_p=0.6),
    "min-p": Sampling(temperature=1.0, min_p=0.1),
    "penalty": Sampling(temperature=1.0, repetition_penalty=1.3),
    "reward": Sampling(temperature=1.0, repetition_penalty=0.8),
    "penalty at T=0": Sampling(repetition_penalty=1.5),
    "all": Sampling(temperature=1.4, top_k=9, top_p=0.8, min_p=0.05, repetition_penalty=1.2),
    "T=0": Sampling(),
}


def library_laws(target, ids, sampling: Sampling, steps: int) -> tuple[list[int], torch.Tensor]:
    """(ids, float[steps, V]) as generate() drew them and from what."""
    how = {"do_sample": False} if sampling.temperature == 0 else {"do_sample": True, "temperature": sampling.temperature}
    if sampling.temperature:
        # its own default is top_k 50, so "off" must be said
        how |= {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p or None}
    config = GenerationConfig(
        max_new_tokens=steps,
        repetition_penalty=sampling.repetition_penalty,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        **how,
    )
    inputs = torch.tensor([ids])
    with torch.random.fork_rng():
        torch.manual_seed(5)
        out = target.model.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=config)
    scores = torch.cat(out.scores)
    laws = scores.softmax(-1)
    if sampling.temperature == 0:
        laws = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
    return out.sequences[0, len(ids) :].tolist(), laws


def block_laws(target, ids, draft, sampling: Sampling) -> torch.Tensor:
    session = target.session(len(ids) + len(draft) + 1)
    session.prefill(ids)
    scores = session.score(ids[-1], draft)
    laws = Laws(sampling, draft, scores.logits, torch.tensor(ids))
    return torch.stack([laws[row] for row in range(len(draft) + 1)])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@torch.inference_mode()
def test_each_row_of_a_block_is_the_librarys_law_after_that_prefix(name, kind):
    target, ids, sampling = tiny(kind), prompt_ids(11), SETTINGS[name]
    drawn, laws = library_laws(target, ids, sampling, 8)
    ours = block_laws(target, ids, chain(drawn[:-1]), sampling)
    torch.testing.assert_close(ours, laws, atol=1e-5, rtol=0)
    assert torch.equal(ours > 0, laws > 0), "the same tokens are ruled out"


@pytest.mark.parametrize("name", SETTINGS)
@torch.inference_mode()
def test_rows_of_a_block_and_of_plain_runs_are_the_same_bits_on_a_table(name):
    target, sampling = ToyTarget(random_table(7, 2, seed=4), order=2), SETTINGS[name]
    draft = tree([3, 3, 1, 0, 6, 2, 2], [-1, -1, 0, 1, 2, 3, -1])
    rows = block_laws(target, [1, 2, 3], draft, sampling)
    for node in range(-1, len(draft)):
        prefix = [1, 2, 3, *draft.tokens[draft.path(node)].tolist()]
        alone = sampling.probs(target.row(prefix)[None], [torch.tensor(prefix)])[0]
        assert torch.equal(rows[node + 1], alone)


@pytest.mark.parametrize("name", SETTINGS)
@torch.inference_mode()
def test_rows_of_a_block_and_of_plain_runs_agree_on_a_model(name):
    target, sampling, ids = tiny("qwen2"), SETTINGS[name], prompt_ids(10)
    draft = tree([3, 3, 1, 0, 6, 2, 2], [-1, -1, 0, 1, 2, 3, -1])
    rows = block_laws(target, ids, draft, sampling)
    for node in range(-1, len(draft)):
        alone = block_laws(target, [*ids, *draft.tokens[draft.path(node)].tolist()], chain([]), sampling)[0]
        torch.testing.assert_close(rows[node + 1], alone, atol=2e-6, rtol=0)


def fixed(*p: float) -> ToyTarget:
    """The same law everywhere."""
    return ToyTarget(torch.tensor([p], dtype=torch.float64).log(), order=0)


def test_b15_filters_apply_to_q_as_well():
    from specviz.drafters import DraftModel

    target, draft = fixed(0.5, 0.3, 0.15, 0.05), fixed(0.4, 0.35, 0.15, 0.1)
    sampling = Sampling(temperature=1.0, top_k=2, seed=1)
    _, rounds = run(target, DraftModel(draft, gamma=1, confidence=0.0), [0], sampling, Limits(4000))
    q = torch.tensor([0.4, 0.35, 0, 0]) / 0.75
    for it in rounds[:3]:
        row = next(row for row in it.rows if row.after == -1)
        for token, value in zip(row.ids, row.q, strict=True):
            assert value == pytest.approx(float(q[token]), abs=1e-7)
        assert row.overlap == pytest.approx(0.9083, abs=1e-4)
    rate = sum(it.tests[0].accepted for it in rounds if it.tests) / sum(bool(it.tests) for it in rounds)
    assert rate == pytest.approx(0.908, abs=0.02)
    assert {t for it in rounds for t in it.emitted} == {0, 1}


@pytest.mark.parametrize("penalty", [1.0, 1.5, 0.7])
def test_b24_a_penalty_works_with_drafting_on(penalty):
    target, ids = tiny("llama"), [5, 9, 5, 9, 5, 9, 5]
    sampling = Sampling(repetition_penalty=penalty)
    plain = emitted(run(target, Plain(), ids, sampling, Limits(12))[1])
    config = GenerationConfig(max_new_tokens=12, do_sample=False, repetition_penalty=penalty, pad_token_id=0)
    library = target.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, 7), generation_config=config)[0, 7:].tolist()
    drafted = run(target, PromptLookup(gamma=8), ids, sampling, Limits(12))[1]
    assert emitted(drafted) == plain == library
    assert any(it.nodes for it in drafted)


def test_b25_the_draft_is_penalised_alike():
    from specviz.drafters import DraftModel

    target, ids = tiny("llama"), [5, 9, 5, 9, 5, 9, 5]
    twin = Watched(tiny("llama"))
    _, rounds = run(
        target, DraftModel(twin, gamma=3, confidence=0.0), ids, Sampling(temperature=1.0, repetition_penalty=1.3, seed=4), Limits(40)
    )
    tests = [test for it in rounds for test in it.tests]
    assert all(test.p == pytest.approx(test.q, abs=1e-5) for test in tests), "a twin under the same settings has q = p on each own prefix"
    assert sum(test.accepted for test in tests) >= len(tests) - 1


def test_a_row_under_a_penalty_lists_what_is_likely_after_it():
    """Eight entries a row, all of them pushed down by the penalty: the likely ones are others than the model's."""
    logits = torch.full((1, 40), 0.0, dtype=torch.float64)
    logits[0, :8], logits[0, 30:34] = 5.0, 4.0
    target = ToyTarget(logits, order=0)
    _, (it,) = run(target, Plain(), list(range(8)), Sampling(temperature=1.0, repetition_penalty=50.0, seed=2), Limits(1), capture=4)
    row = it.rows[0]
    assert set(range(30, 34)) <= set(row.ids) and sum(row.p) > 0.4
    assert row.ids[:4] == sorted(row.ids[:4], key=lambda t: -row.p[row.ids.index(t)])


# --- settings that cannot be


@pytest.mark.parametrize("value", [-1, -0.001, 101, math.nan, math.inf, -math.inf, True, "1", None, 10**400, [1], 1j])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty", "top_k", "seed"])
def test_impossible_values_are_one_sentence(name, value):
    if value == 101 and name in ("top_k", "seed"):
        value = 2**53 + 1
    with pytest.raises(ValueError) as refused:
        Sampling(**{name: value})
    text = str(refused.value)
    assert name in text and text.endswith(".") and "\n" not in text and len(text) < 120


@pytest.mark.parametrize(
    "how",
    [{"top_p": 0}, {"top_p": 0.0}, {"temperature": 1e-40}, {"temperature": 5e-4}, {"repetition_penalty": 0}, {"top_k": 2.0}, {"seed": 1.5}],
)
def test_values_that_have_no_meaning(how):
    with pytest.raises(ValueError, match=next(iter(how))):
        Sampling(**how)


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0.001},
        {"temperature": 100},
        {"temperature": 1, "top_p": 1e-9},
        {"temperature": 1, "min_p": 1},
        {"temperature": 1, "top_k": 10**6},
        {"temperature": 1, "top_k": 1},
        {"repetition_penalty": 100},
        {"temperature": 0.001, "repetition_penalty": 0.01},
    ],
)
def test_extreme_values_still_give_a_law(how):
    logits = torch.tensor([[40.0, -60.0, 3.0, 39.9], [0.0, 0.0, 0.0, 0.0], [-math.inf, 1.0, -math.inf, 2.0]])
    laws = Sampling(**how).probs(logits, [torch.tensor([0, 1])] * 3)
    assert bool(torch.isfinite(laws).all()) and bool((laws >= 0).all())
    torch.testing.assert_close(laws.sum(-1), torch.ones(3))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", SETTINGS)
def test_rows_that_are_no_numbers_are_named(name, bad):
    logits = torch.zeros(3, 8)
    logits[1, 4] = bad
    with pytest.raises(FloatingPointError, match="row 1"):
        SETTINGS[name].probs(logits, [torch.tensor([0])] * 3)
    with pytest.raises(FloatingPointError, match="row 2"):
        SETTINGS[name].probs(torch.stack([logits[0], logits[0], torch.full((8,), -math.inf)]), [torch.tensor([0])] * 3)


def test_half_precision_logits_give_float32_laws():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert Sampling(temperature=1.0).probs(torch.randn(2, 9).to(dtype), []).dtype == torch.float32


# --- drawing


def test_pick_is_the_inverse_of_the_cumulative_law():
    law = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    assert [pick(law, u) for u in (0.0, 0.2499, 0.25, 0.74, 0.75, 0.999, 1 - 2**-53)] == [1, 1, 3, 3, 4, 4, 4]
    one = torch.zeros(9)
    one[6] = 1
    assert {pick(one, u) for u in (0.0, 0.5, 1 - 2**-53)} == {6}


@pytest.mark.parametrize("total", [0.9999999, 1.0000001, 0.5, 3.0])
def test_a_law_that_is_not_quite_normalised(total):
    law = torch.tensor([0.0, 0.5, 0.5, 0.0]) * total
    assert [pick(law, u) for u in (0.0, 0.49999, 0.50001, 1 - 2**-53)] == [1, 1, 2, 2]


def test_a_token_without_mass_is_never_drawn():
    generator = torch.Generator().manual_seed(3)
    for _ in range(300):
        law = torch.rand(50, generator=generator).relu() * (torch.rand(50, generator=generator) < 0.2)
        law[int(torch.randint(50, (1,), generator=generator))] = 1e-30
        for u in (0.0, 1e-300, float(torch.rand((), generator=generator)), 1 - 2**-53):
            assert law[pick(law, u)] > 0


def test_a_large_flat_law_is_drawn_without_bias_from_rounding():
    """200,000 equal tokens: float32 sums would be off by many tokens at the end."""
    law = torch.full((200_000,), 1 / 200_000)
    assert [pick(law, k / 7) for k in range(7)] == [int(200_000 * k / 7) for k in range(7)]


def test_coins_are_fair_seeded_and_their_own():
    before = torch.random.get_rng_state()
    a, b, c = SeededCoins(7), SeededCoins(7), SeededCoins(8)
    first = [a.uniform() for _ in range(2000)]
    assert first == [b.uniform() for _ in range(2000)] != [c.uniform() for _ in range(2000)]
    assert min(first) >= 0 and max(first) < 1 and abs(sum(first) / 2000 - 0.5) < 0.02
    assert torch.equal(before, torch.random.get_rng_state())
    coins = SeededCoins(1)
    assert not any(coins.toss(0.0)[1] for _ in range(100)) and all(coins.toss(1.0)[1] for _ in range(100))


# --- the bytes of a token


class Pieces:
    """A vocabulary of pieces, as the tokenizers of the library give it."""

    eos_token_id = bos_token_id = chat_template = None

    def __init__(self, pieces, added=()):
        self.pieces, self.added_tokens_decoder = pieces, {pieces.index(token): token for token in added}

    def get_vocab(self):
        return {piece: i for i, piece in enumerate(self.pieces)}


def with_tokenizer(tokenizer) -> Target:
    target = tiny("llama")
    return Target("pieces", target.model, tokenizer)


def test_bytes_of_a_byte_level_vocabulary():
    pieces = ["Ġ", "Ġworld", "ä", "¸", "ĸ", "Ċ", "<|end|>", "é"]
    target = with_tokenizer(Pieces(pieces, ["<|end|>"]))
    assert [target.token_bytes(i) for i in range(9)] == [b" ", b" world", b"\xe4", b"\xb8", b"\x96", b"\n", b"<|end|>", b"\xe9", b""]


def test_bytes_of_a_sentencepiece_vocabulary():
    pieces = ["<0x0A>", "<0xF0>", "▁Hello", "▁", "é", "<s>", "<0xZZ>", "Ġ", "▁▁"]
    target = with_tokenizer(Pieces(pieces, ["<s>", "▁▁"]))
    want = [b"\n", b"\xf0", b" Hello", b" ", "é".encode(), b"<s>", b"<0xZZ>", "Ġ".encode(), b"  "]
    assert [target.token_bytes(i) for i in range(9)] == want


def test_ids_without_a_piece_have_no_bytes():
    target = with_tokenizer(Pieces(["a", "▁b"]))
    assert [target.token_bytes(i) for i in (0, 1, 2, VOCAB - 1, 10**9, -1)] == [b"a", b" b", b"", b"", b"", b""]
