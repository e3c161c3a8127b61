"""EAGLE-1, EAGLE-2, EAGLE-3 and MTP with untrained heads: exact laws, text at temperature 0, and a cache of real features alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from specviz.decode import Limits, RunError, decode
from specviz.drafters import METHODS, State, knobs
from specviz.drafters.eagle1 import PARENTS, PLACES, TREE, Eagle1
from specviz.drafters.eagle2 import Eagle2
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.mtp import Mtp
from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.toy import ToyTarget, random_table
from specviz.verify import SeededCoins, Verdict
from tests.law import decode_law, distance, total_variation, true_law
from tests.tinymodels import VOCAB, emitted, plain_ids, prompt_ids, run, tiny

TOY = ToyTarget(random_table(3, 2, seed=1), order=2)
SAMPLED = Sampling(temperature=1.0, seed=3)
MAKERS = {
    "eagle1": lambda head, **knobs: Eagle1(head(Eagle1), **knobs),
    "eagle2": lambda head, **knobs: Eagle2(head(Eagle2), **knobs),
    "eagle3": lambda head, **knobs: Eagle3(head(Eagle3), **knobs),
    "mtp tree": lambda head, **knobs: Mtp(head(Mtp), **knobs),
    "mtp chain": lambda head, **knobs: Mtp(head(Mtp), shape="chain", **knobs),
}
TREES = [name for name in MAKERS if name != "mtp chain"]
DYNAMIC = ["eagle2", "eagle3", "mtp tree"]


def made(name: str, target, d2t=None, spread: float = 0.6, **knobs):
    return MAKERS[name](lambda cls: cls.weights.tiny(target, d2t=d2t, spread=spread), **knobs)


def sized(name: str, size: int) -> dict:
    """Knobs for about so many nodes."""
    return {"gamma": size, "confidence": 0.0} if name == "mtp chain" else {"size": min(size, 25)}


def watched(target, drafter, ids, sampling, limits, seen):
    """The run, with `seen(state, draft)` called after every draft."""
    propose = drafter.propose

    def watch(state):
        draft = propose(state)
        seen(state, draft)
        return draft

    drafter.propose = watch
    try:
        return run(target, drafter, ids, sampling, limits)
    finally:
        del drafter.propose


# --- laws


@pytest.mark.parametrize("settings", [Sampling(), Sampling(temperature=1.0)], ids=["T=0", "T=1"])
@pytest.mark.parametrize("name", MAKERS)
def test_joint_law_is_plain_decodings(name, settings):
    for settled in (sized(name, 2), {"confidence": 0.4, "gamma": 3} if name == "mtp chain" else {}):
        drafter = made(name, TOY, spread=0.3, **settled)
        assert distance(decode_law(TOY, drafter, settings, 3), true_law(TOY, settings, 3)) <= 1e-12


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "settings",
    [Sampling(temperature=0.7, top_k=2), Sampling(temperature=1.3, top_p=0.8), Sampling(temperature=0.9, repetition_penalty=1.4)],
    ids=["top-k", "top-p", "penalty"],
)
def test_joint_law_under_other_settings(name, settings):
    for d2t in (None, torch.tensor([0, 2])):
        drafter = made(name, TOY, d2t, spread=0.3, **sized(name, 2))
        assert distance(decode_law(TOY, drafter, settings, 2), true_law(TOY, settings, 2)) <= 1e-12


@pytest.mark.parametrize("name", MAKERS)
def test_stops_cut_where_plain_would(name):
    ends = dataclasses.replace(TOY, stop_ids=(1,))
    short = dataclasses.replace(TOY, context=5)
    drafter = made(name, TOY, spread=0.3, **sized(name, 2))
    for target, stop, most in ((ends, (), 3), (TOY, ("ab",), 3), (short, (), 9)):
        assert distance(decode_law(target, drafter, SAMPLED, most, stop=stop), true_law(target, SAMPLED, most, stop=stop)) <= 1e-12


def test_a_chain_may_be_verified_as_a_block():
    drafter = made("mtp chain", TOY, spread=0.3, gamma=2, confidence=0.3)
    assert distance(decode_law(TOY, drafter, SAMPLED, 3, rule="block"), true_law(TOY, SAMPLED, 3)) <= 1e-12


@dataclasses.dataclass
class Unrenormalised(Eagle1):
    """Wrong: hands over the law as it was before earlier siblings were taken out."""

    def _drawn(self, state, logits, path, count):
        own, tokens, rows, ids = super()._drawn(state, logits, path, count)
        return own, tokens, rows[:1] * len(rows), ids


def test_a_wrong_q_between_siblings_is_seen():
    wrong = Unrenormalised(Eagle1.weights.tiny(TOY, spread=0.3), size=3, depth=1)
    assert total_variation(decode_law(TOY, wrong, SAMPLED, 2), true_law(TOY, SAMPLED, 2)) > 0.01


# --- text at temperature 0


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("size", [0, 1, 4, 25])
def test_text_at_temperature_0_is_plains(name, size):
    target, limits = tiny("llama"), Limits(20)
    knobs = sized(name, size) if size or name != "mtp chain" else {}
    drafter = made(name, target, **knobs)
    for length in (2, 9):
        ids = prompt_ids(length)
        _, rounds = run(target, drafter, ids, Sampling(), limits)
        assert emitted(rounds) == plain_ids(target, ids, Sampling(), limits)
        assert name not in TREES or not size or all(len(it.nodes) <= size for it in rounds)


@pytest.mark.parametrize("kind", ["qwen2 with windows", "gemma3", "gpt2"])
@pytest.mark.parametrize("name", ["eagle1", "eagle3"])
def test_other_targets(kind, name):
    target, ids = tiny(kind), prompt_ids(7)
    _, rounds = run(target, made(name, target, size=8), ids, Sampling(), Limits(20))
    assert emitted(rounds) == plain_ids(target, ids, Sampling(), Limits(20))


@pytest.mark.parametrize("name", MAKERS)
def test_to_the_end_of_the_context(name):
    target = tiny("llama", max_position_embeddings=40)
    ids = prompt_ids(29)
    _, rounds = run(target, made(name, target, **sized(name, 8)), ids, Sampling(), Limits(99))
    assert emitted(rounds) == plain_ids(target, ids, Sampling(), Limits(99)) and rounds[-1].stop == "context"
    assert all(max((node.depth for node in it.nodes), default=0) <= 40 - 29 for it in rounds)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["T=0", "T=1"])
def test_the_same_seed_gives_the_same_trace(name, sampling):
    target = tiny("llama")
    drafter = made(name, target)

    def trace():
        _, rounds = run(target, drafter, prompt_ids(9), sampling, Limits(40))
        return [(it.nodes, it.path, it.token, it.tests, it.note, it.reason, it.passes) for it in rounds]

    assert trace() == trace()


# --- what the head has read


def slots(drafter) -> tuple[torch.Tensor, torch.Tensor]:
    layer = drafter._recursion.cache.layer
    return layer.keys[0, :, : layer.length], layer.values[0, :, : layer.length]


def fresh(drafter, state) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all real slots, read at once; where nothing may be drafted any more, the newest are not read."""
    count = len(state.ids) - 1 if state.room else drafter._recursion.stable
    features = drafter.head.features({tap: state.hidden[tap][:count] for tap in drafter._taps})
    cache = drafter.head.begin(count)
    drafter.head.step(torch.tensor(state.ids[1 : count + 1]), features, torch.arange(count), None, cache)
    return cache.layer.keys[0, :, :count], cache.layer.values[0, :, :count]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["T=0", "T=1"])
def test_only_real_features_stay(name, sampling):
    """After each draft the cache holds what reading the target's features afresh gives, whether none or all were accepted."""
    target, accepted = tiny("llama"), []

    def compare(state, draft):
        want, found = fresh(drafter, state), slots(drafter)
        for ours, theirs in zip(found, want, strict=True):
            assert ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        accepted.append(state.new - 1)

    drafter = made(name, target, **sized(name, 12))
    watched(target, drafter, prompt_ids(9), sampling, Limits(40), compare)
    assert len(accepted) > 5 and 0 in accepted[1:]


@pytest.mark.parametrize("name", MAKERS)
def test_only_real_features_stay_after_full_acceptance(name):
    """The state is moved along the draft's own deepest path, as if all of it had been accepted, and along none of it."""
    target = tiny("llama")
    ids = prompt_ids(9)
    drafter = made(name, target, **sized(name, 6))
    session = target.session(200, drafter.taps(target.config))
    state = State(ids, len(ids), 50, SAMPLED, SeededCoins(3), (), VOCAB, session.prefill(ids))
    with torch.inference_mode():
        drafter.begin(state)
        for whole in (True, False, True, True, False):
            draft = drafter.propose(state)
            torch.testing.assert_close(slots(drafter), fresh(drafter, state), atol=1e-5, rtol=1e-5)
            deepest = max(range(len(draft)), key=lambda i: draft.depth[i])
            path = tuple(draft.path(deepest)) if whole else ()
            scores = session.score(state.ids[-1], draft)
            session.commit(path)
            state.ids += [*draft.tokens[list(path)].tolist(), 7]
            state.new = len(path) + 1
            rows = [0, *(node + 1 for node in path)]
            state.hidden = {tap: torch.cat([known, scores.hidden[tap][rows]]) for tap, known in state.hidden.items()}
            drafter.accept(state, Verdict(path, 7, "bonus" if whole else "recovered", (), 0.5, None), scores)


@pytest.mark.parametrize("name", MAKERS)
def test_what_a_node_is_drafted_from_is_its_own_path(name):
    """Confidences and laws in a tree are those of the path read alone, one slot after the other."""
    target = tiny("llama")
    ids = prompt_ids(12)
    drafter = made(name, target, spread=0.3, **sized(name, 14))
    hidden = target.session(99, drafter.taps(target.config)).prefill(ids)
    state = State(ids, len(ids), 50, SAMPLED, SeededCoins(3), (), VOCAB, hidden)
    with torch.inference_mode():
        drafter.begin(state)
        draft = drafter.propose(state)
        for node in range(len(draft)):
            path = draft.path(node)
            cache, count = drafter.head.begin(99), len(ids) - 1
            features = drafter.head.features(hidden)
            out, logits = drafter.head.step(torch.tensor(ids[1:]), features, torch.arange(count), None, cache)
            for at, earlier in enumerate(path[:-1]):
                step = draft.tokens[earlier][None], out[-1:], torch.tensor([count + at])
                out, logits = drafter.head.step(*step, None, cache)
            law = logits[-1].softmax(-1)
            before = [i for i in range(node) if draft.parents[i] == draft.parents[node]]
            if draft.q is not None:
                law[draft.tokens[before]] = 0
                torch.testing.assert_close(draft.q[node], law / law.sum(), atol=1e-5, rtol=1e-4)
            else:
                assert draft.note["own"][node] == pytest.approx(float(law[draft.tokens[node]]), abs=1e-5)
    assert name == "mtp chain" or (max(draft.depth) > 1 and not draft.is_chain)


def test_a_long_prompt_is_read_in_pieces():
    target = tiny("llama", max_position_embeddings=2048)
    ids = prompt_ids(1100)
    compared = []

    def compare(state, draft):
        torch.testing.assert_close(slots(drafter), fresh(drafter, state), atol=1e-4, rtol=1e-4)
        compared.append(1)

    drafter = made("eagle3", target, size=4)
    watched(target, drafter, ids, Sampling(), Limits(4), compare)
    assert compared


# --- edges


@pytest.mark.parametrize("name", MAKERS)
def test_a_single_token_has_no_feature_yet(name):
    target = tiny("llama")
    _, rounds = run(target, made(name, target, **sized(name, 4)), [5], Sampling(), Limits(5))
    assert rounds[0].nodes == [] and rounds[0].reason == "no features" and rounds[0].passes == 0 and rounds[1].nodes


@pytest.mark.parametrize("name", MAKERS)
def test_where_there_is_no_room(name):
    target = tiny("llama")
    _, rounds = run(target, made(name, target), prompt_ids(5), Sampling(), Limits(1))
    assert rounds[0].nodes == [] and rounds[0].reason == "clipped"
    _, rounds = run(target, made(name, target, **sized(name, 12)), prompt_ids(5), Sampling(), Limits(3))
    assert max(node.depth for node in rounds[0].nodes) <= 2 and rounds[0].reason == "clipped"


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, Sampling(temperature=0.8, repetition_penalty=1.3, seed=1)])
def test_a_trimmed_head_speaks_the_targets_ids(name, sampling):
    target = tiny("llama")
    d2t = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))[:16].sort().values
    drafter = made(name, target, d2t, **sized(name, 9))
    ids = prompt_ids(9)
    _, rounds = run(target, drafter, ids, sampling, Limits(30))
    drafted = {node.token for it in rounds for node in it.nodes}
    assert drafted <= set(d2t.tolist()) and len(drafted) > 3
    assert not set(emitted(rounds)) <= set(d2t.tolist())  # the target also says what the head cannot
    assert sampling.temperature or emitted(rounds) == plain_ids(target, ids, sampling, Limits(30))


@pytest.mark.parametrize("name", MAKERS)
def test_siblings_differ_and_nothing_follows_an_end_of_text(name):
    target = tiny("llama")
    drafter = made(name, target, **sized(name, 20))
    taps = drafter.taps(target.config)
    for seed in range(6):
        ids = prompt_ids(8, seed)
        ends = tuple(range(0, VOCAB, 3))
        coins = SeededCoins(seed)
        state = State(ids, 8, 50, SAMPLED, coins, ends, VOCAB, target.session(99, taps).prefill(ids))
        with torch.inference_mode():
            drafter.begin(state)
            draft = drafter.propose(state)
        assert len(set(zip(draft.parents, draft.tokens.tolist(), strict=True))) == len(draft)
        assert not any(parent >= 0 and int(draft.tokens[parent]) in ends for parent in draft.parents)
        assert draft.q is None or torch.allclose(draft.q.sum(-1), torch.ones(len(draft)), atol=1e-5)


# --- each method's own


def test_the_published_tree():
    assert len(TREE) == 25 and [sum(level == depth for level, _ in PLACES) for depth in range(1, 6)] == [4, 8, 8, 3, 2]
    assert [TREE[i] for i in range(25)] == sorted(TREE, key=lambda choice: (len(choice), choice))
    assert all(PARENTS[i] == (TREE.index(choice[:-1]) if choice[:-1] else -1) for i, choice in enumerate(TREE))
    assert next(knob for knob in knobs(Eagle1) if knob.name == "size").max == len(TREE)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=3.0)], ids=["T=0", "T=3"])
def test_the_whole_published_tree_is_sent(sampling):
    target = tiny("llama")
    _, rounds = run(target, made("eagle1", target, spread=0.2, size=25), prompt_ids(9), sampling, Limits(40))
    for it in rounds[:5]:
        assert [node.parent for node in it.nodes] == list(PARENTS) and it.passes == 5
        assert all((node.q is None) == (sampling.temperature == 0) for node in it.nodes)


def test_a_fixed_tree_does_not_depend_on_what_is_drawn():
    """Same past, other coins: the same shape, or the draft would not be lossless."""
    target = tiny("llama")
    ids = prompt_ids(9)
    for settled in ({}, {"size": 12}, {"size": 25, "depth": 3}):
        drafter = made("eagle1", target, spread=0.2, **settled)
        hidden = target.session(99, drafter.taps(target.config)).prefill(ids)
        shapes, texts = set(), set()
        for seed in range(8):
            state = State(ids, 9, 50, Sampling(temperature=3.0), SeededCoins(seed), (), VOCAB, hidden)
            with torch.inference_mode():
                drafter.begin(state)
                draft = drafter.propose(state)
            shapes.add(draft.parents)
            texts.add(tuple(draft.tokens.tolist()))
        assert len(shapes) == 1 and len(texts) > 1


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_a_dynamic_tree_notes(name):
    target = tiny("llama")
    drafter = made(name, target, size=7, depth=3, width=4)
    _, rounds = run(target, drafter, prompt_ids(9), Sampling(), Limits(20))
    it = rounds[0]
    assert it.note["size"] == len(it.nodes) == 7 and it.note["grown"] == 4 + 2 * 16 and it.passes == 3
    assert it.note["taps"] == list(drafter.taps(target.config)) and all(node.q is None for node in it.nodes)
    for i, node in enumerate(it.nodes):  # before a run has learned anything, what it believes is what the head says
        chance = it.note["own"][i] * (it.note["score"][node.parent] if node.parent >= 0 else 1)
        assert it.note["score"][i] == pytest.approx(chance, rel=0.05)


@pytest.mark.parametrize("name", TREES)
def test_automatic_trees_shrink_where_the_head_is_wrong(name):
    """An untrained head; dear rows make it send next to nothing, free ones a large tree."""
    target = tiny("llama")
    counts = {}
    for cost in (0.001, 0.3):
        drafter = dataclasses.replace(made(name, target, spread=0.2), row_cost=cost)
        _, rounds = run(target, drafter, prompt_ids(9), Sampling(), Limits(40))
        counts[cost] = [len(it.nodes) for it in rounds[20:-8]]
    assert sum(counts[0.3]) < sum(counts[0.001]) and max(counts[0.3]) <= 2


def test_the_unsure_token_that_ends_a_chain_stays_in_it():
    target = tiny("llama")
    _, rounds = run(target, made("mtp chain", target, gamma=6, confidence=0.5), [1, 2], SAMPLED, Limits(60))
    ended = [it for it in rounds if it.reason == "unsure"]
    assert ended and all(it.passes == len(it.nodes) for it in rounds if it.nodes)
    for it in rounds:
        sure = [own >= 0.5 for own in it.note.get("own", [])]
        assert all(sure[:-1]) and (it.reason != "unsure" or not sure[-1])


def test_a_draft_of_another_drafter_teaches_nothing():
    """As when drafters take turns: what was emitted after no draft of one's own says nothing about one's candidates."""
    target = tiny("llama")
    ids = prompt_ids(9)
    drafter = made("eagle2", target, size=4)
    session = target.session(99, drafter.taps(target.config))
    state = State(ids, 9, 50, Sampling(), SeededCoins(0), (), VOCAB, session.prefill(ids))
    with torch.inference_mode():
        drafter.begin(state)
        drafter.accept(state, Verdict((), 1, "bonus", (), 0.5, None), Scores(torch.zeros(1, VOCAB), {}))
    assert drafter._past._counts == {}


def test_of_many_taps_only_its_own_are_read():
    target = tiny("llama")
    ids = prompt_ids(9)
    drafts = []
    for more in ((), (0, 1)):
        drafter = made("eagle2", target, size=6)
        taps = {*drafter.taps(target.config), *more}
        state = State(ids, 9, 50, Sampling(), SeededCoins(0), (), VOCAB, target.session(99, tuple(sorted(taps))).prefill(ids))
        with torch.inference_mode():
            drafter.begin(state)
            drafts.append(drafter.propose(state).tokens.tolist())
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("cls", [Eagle1, Eagle2, Eagle3, Mtp])
def test_an_untrained_one_for_any_target(cls):
    for target in (TOY, tiny("llama"), tiny("gpt2")):
        drafter = cls.tiny(target)
        assert drafter.needs == "head" and drafter.lossless and drafter.source == drafter.head.kind
        assert list(decode(target, drafter, "", Sampling(), Limits(4), prompt_ids=[1, 2, 0]))


@pytest.mark.parametrize("method", ["eagle1", "eagle2", "eagle3", "mtp", "medusa", "hybrid"])
def test_a_head_without_numbers_ends_the_run_in_one_sentence(method):
    target = tiny("llama")
    drafter = METHODS[method].tiny(target)
    head = drafter._made.head if method == "hybrid" else drafter.head
    if method == "medusa":
        head.heads[0][0].linear.bias.fill_(float("nan"))
    else:
        next(p for p in head.parameters()).fill_(float("nan"))
    with pytest.raises(RunError, match="gave no usable probabilities in iteration 0"):
        run(target, drafter, prompt_ids(6), Sampling(), Limits(8))
