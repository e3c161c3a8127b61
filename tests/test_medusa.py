"""Medusa: the published trees, which head says what, and losslessness whatever the tree."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from specviz import stats
from specviz import trace as tr
from specviz.chance import expectation
from specviz.decode import Limits
from specviz.drafters.medusa import Medusa
from specviz.drafters.medusa_trees import TREES
from specviz.heads import medusa as heads
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from tests.law import decode_law, distance, total_variation, true_law
from tests.tinymodels import emitted, plain_ids, prompt_ids, run, tiny

TOY = ToyTarget(random_table(4, 2, seed=1), order=2)
SHAPES = [("automatic", 0), ("automatic", 6), ("mc_sim_7b_63", 0), ("vicuna_33b_stage1", 5)]
SETTINGS = {
    "T=1": Sampling(temperature=1.0),
    "T=0": Sampling(),
    "filters": Sampling(temperature=0.8, top_k=3, top_p=0.9, min_p=0.05),
    "penalty": Sampling(temperature=0.9, repetition_penalty=1.4),
}


def drafter(target, **knobs) -> Medusa:
    return dataclasses.replace(Medusa.tiny(target), **knobs)


@pytest.mark.parametrize(
    ("name", "levels"),
    {
        "mc_sim_7b_63": (10, 28, 23, 2),
        "vicuna_7b_stage2": (10, 23, 23, 7),
        "vicuna_7b_stage1": (10, 32, 20, 1),
        "vicuna_13b_stage2": (10, 19, 25, 9),
        "vicuna_13b_stage1": (10, 29, 23, 1),
        "vicuna_33b_stage2": (10, 24, 24, 5),
        "vicuna_33b_stage1": (10, 34, 19),
        "zephyr_stage2": (10, 27, 23, 3),
    }.items(),
)
def test_the_published_trees(name, levels):
    choices = TREES[name]
    assert len(set(choices)) == len(choices) == 63
    assert tuple(count for _, count in sorted(Counter(map(len, choices)).items())) == levels
    assert all(choice[:-1] in ((), *choices[:i]) for i, choice in enumerate(choices))  # any first part is a tree
    assert max(map(max, choices)) == 9
    assert set(TREES) < set(next(f for f in dataclasses.fields(Medusa) if f.name == "tree").metadata["choices"])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("tree", "size"), SHAPES)
def test_joint_law_is_plain_decodings(tree, size, settings):
    sampling = SETTINGS[settings]
    law = decode_law(TOY, drafter(TOY, tree=tree, size=size), sampling, 3)
    assert distance(law, true_law(TOY, sampling, 3)) <= 1e-12


@pytest.mark.parametrize(("tree", "size"), SHAPES[:3])
def test_joint_law_through_stops_and_the_end_of_the_context(tree, size):
    sampling = Sampling(temperature=1.0)
    for target in (dataclasses.replace(TOY, stop_ids=(2,)), dataclasses.replace(TOY, context=5)):
        law = decode_law(target, drafter(target, tree=tree, size=size), sampling, 3)
        assert distance(law, true_law(target, sampling, 3)) <= 1e-12


@pytest.mark.parametrize(("tree", "size"), SHAPES[1:3])
def test_typical_acceptance_is_not_lossless_and_the_test_sees_it(tree, size):
    sampling = Sampling(temperature=1.0)
    law = decode_law(TOY, drafter(TOY, tree=tree, size=size), sampling, 3, rule="typical")
    assert total_variation(law, true_law(TOY, sampling, 3)) > 0.02
    cold = decode_law(TOY, drafter(TOY, tree=tree, size=size), Sampling(), 3, rule="typical")
    assert distance(cold, true_law(TOY, Sampling(), 3)) == 0


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "qwen2 with windows"])
@pytest.mark.parametrize(
    ("tree", "size"), [("automatic", 0), ("automatic", 1), ("automatic", 40), ("mc_sim_7b_63", 63), ("zephyr_stage2", 9)]
)
@pytest.mark.parametrize("rule", ["token", "typical"])
def test_temperature_0_gives_plains_ids(kind, tree, size, rule):
    target, ids = tiny(kind), prompt_ids(7)
    for limits in (Limits(1), Limits(19), Limits(100_000)):  # the last one ends with the context
        if limits.max_new > 50 and (kind, size) not in {("gpt2", 40), ("gpt2", 63)}:
            continue
        header, rounds = run(target, drafter(target, tree=tree, size=size), ids, Sampling(), limits, rule=rule)
        assert emitted(rounds) == plain_ids(target, ids, Sampling(), limits)
        assert header.lossless == (rule == "token")
        whole = tr.Trace(header, rounds)
        assert tr.loads(tr.dumps(whole)) == whole


def test_the_same_seed_gives_the_same_trace_and_nodes_keep_their_promise():
    sampling = Sampling(temperature=1.0, seed=4)
    for shape in SHAPES:
        target = ToyTarget(random_table(12, 1, seed=3))
        runs = [run(target, drafter(target, tree=shape[0], size=shape[1]), [1, 2, 3], sampling, Limits(250)) for _ in range(2)]
        facts = [[(it.nodes, it.tests, it.emitted, it.note) for it in rounds] for _, rounds in runs]
        assert facts[0] == facts[1]
        found = expectation(tr.Trace(*runs[0]))
        assert abs(found.measured - found.expected) < 4.5 * found.error


class Spoken(torch.nn.Module):
    """Heads that know what comes: `words` maps the token whose state is read to the tokens that each head names, best first."""

    def __init__(self, target: ToyTarget, words):
        super().__init__()
        self.target, self.words, self.d2t, self.asked = target, words, None, []
        self.heads = [None] * len(words(0))

    def taps(self, config):
        return heads.Medusa.taps(config)

    def forward(self, hidden):
        assert len(hidden) == 1
        known = torch.stack([self.target.hidden([token], 4) for token in range(self.target.vocab)])
        token = int((known - hidden).abs().sum(-1).argmin())
        self.asked.append(token)
        logits = torch.full((1, len(self.heads), self.target.vocab), -30.0)
        for k, named in enumerate(self.words(token)):
            for rank, one in enumerate(named):
                logits[0, k, one] = 10.0 - rank
        return logits


def counting(vocab: int = 9) -> ToyTarget:
    """After t always comes t + 1."""
    table = torch.full((vocab, vocab), -50.0, dtype=torch.float64)
    table[torch.arange(vocab), (torch.arange(vocab) + 1) % vocab] = 0.0
    return ToyTarget(table.log_softmax(-1))


def test_head_k_speaks_of_the_token_k_after_the_root():
    """The state read is that of the token before the root, so with heads that are right every node of one path is accepted."""
    target = counting()
    for knobs in ({"size": 4}, {"size": 0}, {"tree": "mc_sim_7b_63", "size": 63}):
        head = Spoken(target, lambda t: [[(t + 2 + k) % 9, t] for k in range(4)])
        _, rounds = run(target, Medusa(head, **knobs), [3, 4], Sampling(), Limits(41))
        assert emitted(rounds) == [(5 + i) % 9 for i in range(41)]
        assert [len(it.path) for it in rounds] == [4] * 8 + [0]
        assert head.asked[:3] == [3, 8, 4]
        assert all(it.note["rank"][it.path[-1]] == 0 for it in rounds if it.path)


def test_a_published_tree_is_made_of_ranks():
    target = tiny("llama")
    for size in (63, 17):
        made = drafter(target, tree="mc_sim_7b_63", size=size)
        _, (first, *_) = run(target, made, prompt_ids(6), Sampling(), Limits(30))
        session = target.session(64, made.taps(target.config))
        state = session.prefill(prompt_ids(6))[made._tap][-1:]
        ranked = made.head(state)[0].argsort(-1, descending=True).tolist()
        wanted = {tuple(ranked[k][rank] for k, rank in enumerate(c)) for c in TREES["mc_sim_7b_63"][:size] if len(c) <= 3}
        paths = {}
        for i, node in enumerate(first.nodes):
            paths[i] = (*paths.get(node.parent, ()), node.token)
            assert first.note["rank"][i] == ranked[node.depth - 1].index(node.token)
        assert set(paths.values()) == wanted and len(paths) == len(wanted)
        assert first.passes == 1 and all(node.q is None for node in first.nodes)


def test_sizes_depths_and_what_the_note_says():
    target = tiny("llama")
    for size in (1, 5, 30):
        header, rounds = run(target, drafter(target, size=size), prompt_ids(6), Sampling(temperature=1.0), Limits(30))
        assert all(len(it.nodes) == size for it in rounds[:-3])
        assert all(node.depth <= 3 for it in rounds for node in it.nodes)  # three heads
        for it in filter(lambda it: it.nodes, rounds):
            assert it.note["size"] == size and it.note["grown"] >= len(it.nodes)
            for i, node in enumerate(it.nodes):
                above = 1.0 if node.parent < 0 else it.note["score"][node.parent]
                assert 0 <= it.note["score"][i] <= above and 0 <= it.note["own"][i] <= 1
    header, rounds = run(target, drafter(target, depth=1, size=4), prompt_ids(6), Sampling(), Limits(12))
    assert all(node.parent == -1 for it in rounds for node in it.nodes)
    assert stats.summary(tr.Trace(header, rounds)).passes == sum(bool(it.nodes) for it in rounds)


def test_no_state_no_room_no_tree():
    _, rounds = run(TOY, drafter(TOY, size=3), [1], Sampling(), Limits(5))  # the state before the only token is nobody's
    assert rounds[0].nodes == [] and rounds[0].reason == "no features" and rounds[1].nodes
    assert rounds[-1].reason == "clipped" and emitted(rounds) == plain_ids(TOY, [1], Sampling(), Limits(5))


def test_nothing_is_drafted_after_an_end_of_text():
    target = dataclasses.replace(counting(), stop_ids=(7,))
    for knobs in ({"size": 20}, {"tree": "mc_sim_7b_63", "size": 63}):
        head = Spoken(target, lambda t: [[(t + 2 + k) % 9, 7, 8] for k in range(4)])
        _, rounds = run(target, Medusa(head, **knobs), [3, 4], Sampling(), Limits(20))
        assert emitted(rounds) == [5, 6, 7] and rounds[-1].stop == "end_of_text"
        ends = {i for it in rounds for i, node in enumerate(it.nodes) if node.token == 7}
        assert ends and not any(node.parent in ends for it in rounds for node in it.nodes)


def test_a_trimmed_vocabulary_names_the_targets_ids():
    target, d2t = tiny("llama"), torch.arange(1, 60, 3)
    made = Medusa(heads.Medusa.tiny(target, d2t=d2t), size=12)
    _, rounds = run(target, made, prompt_ids(6), Sampling(), Limits(20))
    assert {node.token for it in rounds for node in it.nodes} <= set(d2t.tolist())
    assert emitted(rounds) == plain_ids(target, prompt_ids(6), Sampling(), Limits(20))


def test_a_tree_pays_more_where_rows_cost_less():
    target = ToyTarget(random_table(12, 1, seed=3))
    counts = []
    for cost in (0.001, 0.045, 5.0):
        header, rounds = run(target, drafter(target, row_cost=cost), [1, 2, 3], Sampling(temperature=1.0), Limits(60))
        counts.append(stats.summary(tr.Trace(header, rounds)).drafted / len(rounds))
        if cost == 5.0:
            assert all(not it.nodes and it.reason in ("unsure", "clipped") for it in rounds)
    assert counts[0] > counts[1] > counts[2] == 0
