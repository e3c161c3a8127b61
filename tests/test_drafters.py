"""Drafters alone: what they propose from a state, in which order, why they stop, and which knobs they have."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from specviz.decode import Limits
from specviz.drafters import METHODS, DraftModel, DraftTree, Knob, Plain, PromptLookup, State, knob_values, knobs
from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.toy import ToyTarget, random_table
from specviz.tree import Draft, chain, empty, tree
from specviz.verify import SeededCoins, Verdict
from tests.law import decode_law, distance, true_law
from tests.tinymodels import VOCAB, emitted, prompt_ids, run, tiny

TOY = ToyTarget(random_table(6, 1, seed=2))


def state(ids, room=50, sampling=Sampling(), stop_ids=(), vocab=6) -> State:  # noqa: B008
    return State(list(ids), len(ids), room, sampling, SeededCoins(sampling.seed), stop_ids, vocab)


def lookup(ids, room=50, stop_ids=(), **knobs) -> Draft:
    drafter, s = PromptLookup(**knobs), state(ids, room, stop_ids=stop_ids)
    drafter.begin(s)
    return drafter.propose(s)


# --- prompt lookup


@pytest.mark.parametrize(
    ("ids", "knobs", "want", "size"),
    [
        ([1, 2, 3, 9, 1, 2], {"gamma": 4}, [3, 9, 1, 2], 2),
        ([1, 2, 3, 9, 1, 2], {"gamma": 2}, [3, 9], 2),
        ([7, 1, 3, 2, 1], {"ngram": 3, "gamma": 3}, [3, 2, 1], 1),  # longer n-grams do not match
        ([1, 2, 5, 4, 2, 6, 1, 2], {"ngram": 2, "gamma": 1}, [5], 2),  # the longest match wins over a later, shorter one
        ([1, 5, 1, 6, 1], {"ngram": 1, "gamma": 1}, [6], 1),  # the latest match wins
        ([4, 4], {"gamma": 3}, [4, 4, 4], 1),  # a copy goes on in itself
        ([1, 2, 1, 2], {"gamma": 5}, [1, 2, 1, 2, 1], 2),
    ],
)
def test_what_is_copied(ids, knobs, want, size):
    draft = lookup(ids, **knobs)
    assert draft.tokens.tolist() == want and draft.note["ngram"] == size and draft.q is None and draft.passes == 0
    assert ids[draft.note["from"]] == want[0]


@pytest.mark.parametrize("ids", [[3], [3, 4], [3, 4, 5]])
def test_b13_no_match_is_a_plain_step(ids):
    draft = lookup(ids, ngram=3)
    assert len(draft) == 0 and draft.reason == "no match"
    _, rounds = run(TOY, PromptLookup(ngram=3), ids, Sampling(), Limits(1))
    assert rounds[0].reason == "no match" and rounds[0].nodes == [] and rounds[0].kind == "bonus"


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"room": 2, "gamma": 4}, "clipped"),
        ({"room": 0}, "clipped"),
        ({"gamma": 9}, ""),
        ({"gamma": 3}, ""),
        ({"gamma": 9, "stop_ids": (9,)}, "end of text"),
    ],
)
def test_why_there_are_fewer_tokens(knobs, reason):
    draft = lookup([1, 2, 3, 9, 8, 1, 2], **knobs)
    assert draft.reason == reason and len(draft) <= knobs.get("room", 50)
    if "stop_ids" in knobs:
        assert draft.tokens.tolist() == [3, 9]  # nothing is copied past an end of text


def test_the_index_grows_as_a_search_from_scratch_would_find():
    """Against looking through everything again each time, on random ids."""

    def scan(ids, ngram, gamma):
        for size in range(min(ngram, len(ids) - 1), 0, -1):
            for at in reversed(range(len(ids) - size)):
                if ids[at : at + size] == ids[-size:]:
                    whole = list(ids)
                    for i in range(gamma):
                        whole.append(whole[at + size + i])
                    return whole[len(ids) :]
        return []

    ids = torch.randint(4, (120,), generator=torch.Generator().manual_seed(1)).tolist()
    drafter, s = PromptLookup(gamma=5, ngram=4), state(ids[:3])
    drafter.begin(s)
    for end in range(3, 120):
        if end % 3:
            continue  # rounds emit several tokens at once
        s.ids = ids[:end]
        assert drafter.propose(s).tokens.tolist() == scan(ids[:end], 4, 5)


def test_a_drafter_starts_afresh_with_every_run():
    drafter = PromptLookup()
    for ids in ([1, 2, 3, 1, 2], [5, 4]):
        s = state(ids)
        drafter.begin(s)
        draft = drafter.propose(s)
    assert draft.reason == "no match"
    model = DraftModel(tiny("llama", noise=0.1), adaptive="heuristic", confidence=0.0)
    first = [run(tiny("llama"), model, prompt_ids(9), Sampling(), Limits(15)) for _ in range(2)]
    assert [len(it.nodes) for it in first[0][1]] == [len(it.nodes) for it in first[1][1]]


# --- the draft model


def test_q_is_the_law_each_token_was_drawn_from():
    sampling = Sampling(temperature=1.1, top_k=4, repetition_penalty=1.3, seed=3)
    drafter, s = DraftModel(TOY, gamma=5, confidence=0.0), state([1, 2, 3], sampling=sampling)
    drafter.begin(s)
    draft = drafter.propose(s)
    coins = SeededCoins(3)
    assert len(draft) == draft.passes == 5 and draft.is_chain
    for i in range(5):
        prefix = [1, 2, 3, *draft.tokens[:i].tolist()]
        law = sampling.probs(TOY.row(prefix)[None], [torch.tensor(prefix)])[0]
        assert torch.equal(draft.q[i], law)
        assert coins.draw(law)[1] == int(draft.tokens[i])


@pytest.mark.parametrize("gamma", [1, 3, 7])
@pytest.mark.parametrize("make", [lambda g: DraftModel(tiny("llama"), gamma=g, confidence=0.0), lambda g: PromptLookup(gamma=g)])
def test_b12_the_length_that_was_asked_for_arrives(make, gamma):
    ids = [10, 20, 30, 20] * 2 + [10, 20, 30]  # "red fish blue fish ..."
    header, rounds = run(tiny("llama"), make(gamma), ids, Sampling(), Limits(40))
    assert header.knobs["gamma"] == gamma and header.method == make(gamma).name
    assert any(len(it.nodes) == gamma for it in rounds)
    assert all(len(it.nodes) == gamma or (len(it.nodes) < gamma and it.reason) for it in rounds)


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0])
def test_the_unsure_token_that_ends_a_chain_stays_in_it(confidence):
    sampling = Sampling(temperature=1.0, seed=1)
    _, rounds = run(tiny("llama"), DraftModel(tiny("llama", noise=0.1), gamma=6, confidence=confidence), [1, 2], sampling, Limits(60))
    ended = [it for it in rounds if it.reason == "unsure"]
    assert bool(ended) == (confidence > 0)
    for it in rounds:
        sure = [node.q >= confidence for node in it.nodes]
        assert all(sure[:-1]) and (it.reason != "unsure" or not sure[-1])


def test_confidence_is_that_of_the_model_before_settings():
    """At temperature 0 the law is one-hot, which says nothing about how sure the draft is."""
    flat = ToyTarget(torch.tensor([[0.3, 0.4, 0.2, 0.1]], dtype=torch.float64).log(), order=0)
    drafter, s = DraftModel(flat, gamma=5, confidence=0.5), state([1, 2], vocab=4)
    drafter.begin(s)
    draft = drafter.propose(s)
    assert draft.tokens.tolist() == [1] and draft.reason == "unsure" and draft.q[0].tolist() == [0, 1, 0, 0]


def test_nothing_is_drafted_past_an_end_of_text():
    sure = ToyTarget(torch.tensor([[0.0, 9.0, 0.0]]).double(), order=0)
    drafter, s = DraftModel(sure, gamma=5, confidence=0.0), state([0], stop_ids=(1,), vocab=3)
    drafter.begin(s)
    draft = drafter.propose(s)
    assert draft.tokens.tolist() == [1] and draft.reason == "end of text"


def test_the_heuristic_grows_by_two_shrinks_by_one_and_stays_in_range():
    drafter, s = DraftModel(TOY, gamma=30, adaptive="heuristic", confidence=0.0), state([0])
    drafter.begin(s)
    scores, lengths = Scores(torch.zeros(1, 6), {}), []
    for kind in ["bonus"] * 3 + ["recovered"] * 40 + ["bonus"] * 2:
        drafter.accept(s, Verdict((), 0, kind, (), 0.5, None), scores)
        lengths.append(drafter._length)
    assert lengths[:5] == [32, 32, 32, 31, 30] and min(lengths) == 1 and lengths[-3:] == [1, 3, 5]


def test_b45_a_trimmed_head_speaks_the_targets_ids():
    d2t = torch.tensor([5, 2, 0])
    draft = ToyTarget(torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log(), order=0)
    drafter, s = (
        DraftModel(draft, d2t=d2t, gamma=60, confidence=0.0),
        state([1], sampling=Sampling(temperature=1.0, seed=2), vocab=6, room=99),
    )
    drafter.begin(s)
    proposed = drafter.propose(s)
    assert set(proposed.tokens.tolist()) == {5, 2, 0}
    assert proposed.q[0].tolist() == pytest.approx([0.2, 0, 0.3, 0, 0, 0.5])


def test_a_trimmed_head_of_a_real_model_is_lossless(tmp_path):
    from specviz.heads import draft as head

    target = tiny("llama")
    d2t = torch.randperm(64, generator=torch.Generator().manual_seed(1))[:16]
    model = head.build(target.model, [0], 16)
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter is not target.model.get_input_embeddings().weight:
            torch.nn.init.normal_(parameter, std=0.3)
    head.save(model, d2t, {"layers": [0]}, tmp_path)
    draft, found = head.load(tmp_path, target)
    assert torch.equal(found, d2t)
    for sampling in (Sampling(), Sampling(temperature=1.0, seed=1)):
        _, rounds = run(target, DraftModel(draft, d2t=found, confidence=0.0), prompt_ids(9), sampling, Limits(20))
        assert {node.token for it in rounds for node in it.nodes} <= set(d2t.tolist())
    assert emitted(run(target, DraftModel(draft, d2t=found, confidence=0.0), prompt_ids(9), Sampling(), Limits(20))[1]) == emitted(
        run(target, Plain(), prompt_ids(9), Sampling(), Limits(20))[1]
    )


# --- the draft model's tree


def test_a_draft_tree_believes_what_its_model_gives_after_each_path():
    model = tiny("llama")
    drafter, s = DraftTree(model, size=12, width=3), state(prompt_ids(9), vocab=VOCAB)
    drafter.begin(s)
    for _ in range(2):  # behind a prompt, then behind an accepted node too
        draft = drafter.propose(s)
        assert len(draft) == 12 and max(draft.depth) > 2 and draft.q is None and not draft.is_chain
        for node, own in enumerate(draft.note["own"]):
            *before, token = [draft.tokens[i].item() for i in draft.path(node)]
            ids = [*s.ids, *before]
            law = model.session(40).forward(ids, tuple(range(-1, len(ids) - 1))).logits[-1].softmax(-1)
            assert own == pytest.approx(float(law[token]), abs=1e-6)
            assert own >= float(law.topk(3).values[-1]) - 1e-6
        s.ids = [*s.ids, draft.tokens[0].item(), 5]


def test_a_draft_tree_speaks_the_targets_ids_alone():
    laws = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    trimmed = DraftTree(ToyTarget(laws[:, :3], order=0), d2t=torch.tensor([5, 2, 0]), size=5)
    larger = DraftTree(ToyTarget(laws, order=0), size=9)  # than a target of three tokens
    short = DraftTree(ToyTarget(laws, order=0, context=4), size=9)
    for drafter, vocab, ids, want in ((trimmed, 6, [4, 1], {5, 2, 0}), (larger, 3, [1, 2], {0, 1, 2}), (short, 6, [5, 1, 0, 5], set())):
        s = state(ids, vocab=vocab)
        drafter.begin(s)
        draft = drafter.propose(s)
        assert set(draft.tokens.tolist()) == want and (draft.reason == "clipped") == (not want)


# --- drafts


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-1, 2, 0], [-2], [-1, -1, 5]])
def test_a_draft_whose_parents_make_no_tree_is_refused(parents):
    with pytest.raises(ValueError, match="parent"):
        tree([1] * len(parents), parents)


def test_a_draft_needs_a_row_for_every_token():
    with pytest.raises(ValueError, match="row"):
        Draft(torch.tensor([1, 2]), (-1, 0), torch.zeros(1, 4))
    with pytest.raises(ValueError, match="parent"):
        Draft(torch.tensor([1, 2]), (-1,))


def test_shape_of_a_tree():
    draft = tree([1, 2, 3, 4, 5], [-1, 0, 0, -1, 2], probe=(False, False, False, True, False))
    assert draft.depth == (1, 2, 2, 1, 3) and draft.path(4) == [0, 2, 4] and draft.path(-1) == []
    assert draft.children(-1) == [0] and draft.children(0) == [1, 2] and not draft.is_chain
    assert draft.mask.int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 1, 0, 1]]
    assert [draft.history(row, torch.tensor([9])).tolist() for row in range(6)] == [[9], [9, 1], [9, 1, 2], [9, 1, 3], [9, 4], [9, 1, 3, 5]]
    assert len(empty("x")) == 0 and empty("x").is_chain and chain([]).q is None


# --- knobs


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_a_form_needs(method):
    cls = METHODS[method]
    assert (
        cls.name == method
        and isinstance(cls.lossless, bool)
        and cls.needs in ("", "model", "head", "target")
        and isinstance(cls.paper, str)
    )
    for knob in knobs(cls):
        assert knob.help.endswith(".") or "off" in knob.help
        assert knob.check(knob.default) == knob.default
        if knob.kind in ("int", "float"):
            assert knob.check(knob.min) == knob.min and knob.check(knob.max) == knob.max


def test_knobs_of_the_draft_model():
    found = {knob.name: knob for knob in knobs(DraftModel)}
    assert list(found) == ["gamma", "adaptive", "confidence", "threshold"]
    assert found["gamma"] == Knob("gamma", "int", 4, 1, 32, None, (), found["gamma"].help)
    assert found["adaptive"].kind == "choice" and found["adaptive"].choices == ("constant", "heuristic", "specdec")
    assert knob_values(DraftModel(TOY, gamma=7, confidence=0.0)) == {
        "gamma": 7,
        "adaptive": "constant",
        "confidence": 0.0,
        "threshold": 0.6,
    }
    assert type(found["gamma"].check(3.0)) is int and type(found["confidence"].check(1)) is float


@pytest.mark.parametrize("value", [0, 33, 2.5, True, None, "4", math.nan, math.inf, [4]])
def test_values_outside_a_knob_are_one_sentence(value):
    with pytest.raises(ValueError, match=r"^gamma must be a whole number from 1 to 32, not .*\.$"):
        knobs(DraftModel)[0].check(value)


def test_a_switch_takes_only_true_and_false():
    @dataclasses.dataclass
    class Switched:
        on: bool = dataclasses.field(default=True, metadata={"help": "On."})

    (knob,) = knobs(Switched)
    assert knob.kind == "bool" and knob.check(False) is False
    for value in (1, 0, "true", None):
        with pytest.raises(ValueError, match=r"^on must be true or false"):
            knob.check(value)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_trimmed_head_drafts_what_its_widened_law_says(temperature, penalty):
    """The short cut over the head's own rows gives the law and the tokens of the long way over the target's vocabulary."""
    d2t = torch.tensor([0, 2, 3])
    draft = ToyTarget(random_table(4, 1, seed=6)[:1, d2t], order=0)
    target = ToyTarget(random_table(4, 1, seed=7))
    sampling = Sampling(temperature=temperature, repetition_penalty=penalty)
    assert (
        distance(decode_law(target, DraftModel(draft, d2t, gamma=2, confidence=0.0), sampling, 3), true_law(target, sampling, 3)) <= 1e-12
    )


class Says:
    """An acceptance head that says the same of every token."""

    def __init__(self, chance: float):
        self.chance = chance

    def __call__(self, hidden):
        return torch.full((len(hidden),), self.chance)


@pytest.mark.parametrize("chance, length", [(1.0, 6), (0.8, 4), (0.1, 2)])
def test_specdec_stops_when_a_rejection_is_likely(chance, length):
    # after reading k tokens the chance of a rejection is 1 - chance ** k; the token drawn in the same pass stays
    drafter = DraftModel(tiny("llama"), gamma=6, adaptive="specdec", threshold=0.45, acceptance=Says(chance))
    s = state([1, 2, 3], vocab=VOCAB)
    drafter.begin(s)
    draft = drafter.propose(s)
    assert len(draft) == length and draft.note["chance"] == [chance] * (length - 1)
    assert (draft.reason == "a rejection is likely") == (chance < 1)
