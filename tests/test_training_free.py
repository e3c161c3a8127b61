"""Methods that need no weights of their own: what they remember, how their trees grow, and that nothing of it changes the text."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import pytest
import torch

from specviz.decode import Limits, decode
from specviz.drafters import DraftModel, EarlyExit, Hybrid, Lookahead, Lookups, Plain, State, Suffix, TokenRecycling
from specviz.drafters.early_exit import kept
from specviz.drafters.grow import Experience, best
from specviz.drafters.hybrid import Offered
from specviz.drafters.token_recycling import best_of, likeliest
from specviz.drafters.trie import Answer, Tally, Union, sprout
from specviz.sampling import Sampling
from specviz.session import Scores, Target
from specviz.toy import ToyTarget, random_table
from specviz.tree import chain, tree
from specviz.verify import SeededCoins, Verdict
from tests.law import decode_law, distance, true_law
from tests.test_session import assert_fresh, rounds
from tests.tinymodels import VOCAB, Letters, Watched, emitted, plain_ids, prompt_ids, run, tiny, tiny_model

GREEDY = Sampling()
TOY = ToyTarget(random_table(3, 2, seed=8), order=2)
DRAFT = ToyTarget(random_table(3, 1, seed=2), order=1)
MADE = {
    "recycling": lambda target: TokenRecycling(),
    "recycling, 9 nodes of single keys": lambda target: TokenRecycling(size=9, width=4, context=1),
    "suffix": lambda target: Suffix(),
    "suffix, 6 nodes": lambda target: Suffix(size=6, match=3, min_prob=0.0, factor=4.0),
    "lookahead": lambda target: Lookahead(),
    "lookahead, 5 nodes": lambda target: Lookahead(window=4, ngram=4, guesses=3, size=5),
    "Jacobi": lambda target: Lookahead(window=4, ngram=2),
    "early exit": lambda target: EarlyExit(model=target, confidence=0.0, share=0.5),
    "lookups": lambda target: Lookups(),
    "hybrid": lambda target: Hybrid.tiny(target),
}
every = pytest.mark.parametrize("made", MADE)


def state(ids, room=50, stop_ids=(), vocab=12, new=None) -> State:
    return State(list(ids), new or len(ids), room, GREEDY, SeededCoins(0), stop_ids, vocab)


def started(drafter, *args, **more):
    s = state(*args, **more)
    drafter.begin(s)
    return drafter, s


# --- nothing changes the text


@every
@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_greedy_text_is_plains_to_every_kind_of_end(made, kind):
    target, ids = tiny(kind), [10, 20, 30, 20] * 3 + [10, 20]
    whole = plain_ids(target, ids, GREEDY, Limits(200))  # to the end of the context
    assert emitted(run(target, MADE[made](target), ids, GREEDY, Limits(200))[1]) == whole and len(whole) > 40
    text = b"".join(target.token_bytes(token) for token in whole[5:8]).decode()
    for limits in (Limits(1), Limits(7), Limits(60, (text,))):
        assert emitted(run(target, MADE[made](target), ids, GREEDY, limits)[1]) == plain_ids(target, ids, GREEDY, limits)


@every
def test_joint_law_is_plain_decodings(made):
    sampling = Sampling(temperature=1.0)
    law = decode_law(TOY, MADE[made](TOY), sampling, 3, prompt=(0, 1, 2, 0, 1))
    assert distance(law, true_law(TOY, sampling, 3, prompt=(0, 1, 2, 0, 1))) <= 1e-12


@every
@torch.inference_mode()
def test_caches_are_those_of_a_fresh_prefill(made):
    target, taken = Watched(tiny("qwen3")), 0
    for ids, it in rounds(target, MADE[made](target), [10, 20, 30, 20] * 3, Sampling(temperature=0.3, seed=1), 40):
        for session in target.sessions:
            assert_fresh(session, ids)
        assert not any(it.nodes[node].probe for node in it.path)
        taken += len(it.path)
    assert taken > 0 or made == "Jacobi"


@every
def test_same_seed_same_run_and_a_drafter_starts_afresh(made):
    target, ids, sampling = tiny("llama"), [1, 2, 3, 1, 2, 3, 1], Sampling(temperature=0.8, seed=4)
    drafter = MADE[made](target)
    runs = [
        [(it.emitted, [n.token for n in it.nodes], it.note) for it in run(target, one, ids, sampling, Limits(25))[1]]
        for one in (drafter, drafter, MADE[made](target))
    ]
    assert runs[0] == runs[1] == runs[2]


# --- trees out of lists


class Listed:
    """A part that answers from a table of paths."""

    def __init__(self, answers, chances):
        self.answers, self.tally = answers, Tally(chances)

    def after(self, path):
        return self.tally.answer(*self.answers.get(path, ([], [])))

    def learn(self, answer, emitted):
        self.tally.learn(answer, emitted)


def test_a_grown_tree_is_the_best_one_of_all_candidates():
    """Against grow.best over everything that could be drafted, at every size and at several prices of a row."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        chances = torch.rand(12, generator=generator).tolist()
        answers, paths, scores, parents = {}, [()], [], []
        for path in paths:
            if len(path) == 3:
                continue
            kinds = torch.randint(12, (3,), generator=generator).tolist()
            answers[path] = ([4, 5, 6], kinds)
            for token, kind in zip((4, 5, 6), kinds, strict=True):
                parent = paths.index(path) - 1
                scores.append((scores[parent] if parent >= 0 else 1.0) * min(0.98, chances[kind]))
                parents.append(parent)
                paths.append((*path, token))
        for size, row_cost in ((0, 0.045), (0, 0.2), (5, 0.045), (30, 0.045), (99, 0.045)):
            past = Experience()
            trie = sprout(Listed(answers, chances), state([1]), size, row_cost, past)
            wanted = best(scores, parents, size, row_cost, before=(past.tokens, past.time))
            assert trie.scores == pytest.approx(sorted((scores[i] for i in wanted), reverse=True))
            assert trie.scores == sorted(trie.scores, reverse=True)


def test_parts_as_one_share_the_chance_and_learn_each_for_itself():
    parts = [Listed({(): ([7, 8], [0, 1])}, [0.3, 0.2]), Listed({(): ([8, 9], [0, 1]), (8,): ([1], [0])}, [0.6, 0.1])]
    union = Union()
    for part in parts:
        union.add(part, 0.5)
    trie = sprout(union, state([1]), 9, 0.045, Experience())
    # 8 is said by both, 0.6 and 0.2; 9 by one, 0.1 * 0.5; 7 by the other, 0.3 of the 0.3 left * 0.5; 1 by one that alone speaks
    assert trie.tokens == [8, 1, 9, 7] and trie.parents == [-1, 0, -1, -1]
    assert trie.scores == pytest.approx([0.4, 0.24, 0.05, 0.045])
    assert trie.asked[()].evidence.who == [1, 1, 0] and trie.asked[8,].evidence.who == [1]
    trie.learn(union, [8, 5])
    assert parts[0].tally.chance == pytest.approx([16 * 0.3 / 17, (16 * 0.2 + 1) / 17])
    assert parts[1].tally.chance == pytest.approx([(16 * 0.6 + 1) / 18, 16 * 0.1 / 17])
    assert union._hits == [8, 8] and union._hoped == pytest.approx([16.09, 16.1])


def test_a_tree_ends_at_the_room_and_at_an_end_of_text():
    endless = Listed({(3,) * depth: ([3, 2], [0, 0]) for depth in range(9)} | {(2,): ([3], [0])}, [0.9])
    draft = sprout(endless, state([1], room=4, stop_ids=(2,)), 50, 0.045, Experience()).draft(50)
    assert max(draft.depth) == 4 and len(draft) == 8
    assert all(draft.children(i) == [] for i, token in enumerate(draft.tokens.tolist()) if token == 2)


# --- token recycling


@pytest.mark.parametrize("vocab", [5, 64, 49152, 49153])
def test_the_best_tokens_are_found_by_blocks_as_by_a_whole_search(vocab):
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab))
    for ours, theirs in zip(best_of(logits, min(8, vocab)), logits.topk(min(8, vocab)), strict=True):
        assert torch.equal(ours, theirs)


def test_every_scored_row_names_successors_rejected_ones_too():
    drafter, s = started(TokenRecycling(width=2, context=2, size=4), [3, 4, 3])
    assert drafter.after(()).tokens == [4] and drafter.propose(s).tokens.tolist() == [4, 3, 4, 3]
    logits = torch.randn(4, 12, generator=torch.Generator().manual_seed(1))
    s.ids, s.new = [3, 4, 3, 7, 2], 2
    scores = Scores(logits, {}, tokens=(3, 7, 8, 9), parents=(-1, 0, 0, 2))  # 7 accepted, 8 and 9 behind it were not
    drafter.accept(s, Verdict((0,), 2, "recovered", (), 0.5, None), scores)
    tokens, kinds = likeliest(logits, 2)
    for row, keys in enumerate([[(3,), (4, 3)], [(7,), (3, 7)], [(8,), (3, 8)], [(9,), (8, 9)]]):
        for key in keys:
            assert drafter._next[key] == (tokens[row], kinds[row])
    assert drafter._next[3, 4] == ([3], [9])  # the prompt's own, not seen since
    assert drafter.after(()) == Answer()  # 2 was never read


def test_a_longer_key_wins_and_accepted_rows_stay():
    drafter, s = started(TokenRecycling(width=1, context=2), [1, 5])
    logits = torch.eye(12)[[6, 7, 8]] * 9
    s.ids, s.new = [1, 5, 5, 0], 2
    # the same token three times: accepted after the root, and rejected twice
    drafter.accept(s, Verdict((0,), 0, "recovered", (), 0.5, None), Scores(logits, {}, (5, 5, 5), (-1, 0, 1)))
    assert drafter._next[(5,)][0] == [7] and drafter._next[1, 5][0] == [6] and drafter._next[5, 5][0] == [7]
    s.ids = [1, 5, 5, 0, 1, 5]
    drafter._root(s)
    assert drafter.after(())[0] == [6] and drafter.after((5,))[0] == [7]


def test_what_was_accepted_is_believed_more():
    """A text that always goes on as before, and one that never does."""
    sizes = []
    for continues in (True, False):
        drafter, s = started(TokenRecycling(context=1), [1, 2, 3, 1, 2, 3, 1])
        for _ in range(60):
            draft = drafter.propose(s)
            drafter._trie.learn(drafter, [2 if continues else 9])
        sizes.append((len(draft), drafter.tally.chance[9]))
    assert sizes[0][0] > sizes[1][0] and sizes[0][1] > 0.8 and sizes[1][1] < 0.1


# --- suffix decoding


def test_counts_are_those_of_a_search_from_scratch():
    ids = torch.randint(4, (90,), generator=torch.Generator().manual_seed(1)).tolist()
    drafter, s = started(Suffix(match=5, min_prob=0.0, factor=8.0), ids[:3])
    for end in range(4, 90, 3):
        s.ids = ids[:end]
        drafter.read(s)
        for path in ((), (1,), (2, 3)):
            text = [*ids[:end], *path]
            for length in range(min(5, len(text)), 0, -1):
                run_, found = text[-length:], Counter()
                for at in range(length, end):
                    if ids[at - length : at] == run_:
                        found[ids[at]] += 1
                if found:
                    break
            tokens = drafter.after(path).tokens
            if tokens or found:
                assert {token: found[token] for token in tokens} == found
                assert [found[token] for token in tokens] == sorted(found.values(), reverse=True)


def test_a_draft_is_no_longer_than_the_match_allows_and_leaves_out_what_is_rare():
    drafter, s = started(Suffix(factor=1.0, size=20), [1, 2, 3, 4, 5, 6, 9, 1, 2, 3])
    draft = drafter.propose(s)
    assert draft.tokens.tolist() == [4, 5, 6] and draft.note["match"] == 3 and draft.q is None
    drafter, s = started(Suffix(min_prob=0.3, size=9, factor=1.0), [1, 2, 1, 2, 1, 2, 1, 3, 1])
    assert drafter.propose(s).tokens.tolist() == [2]  # three times of four
    drafter, s = started(Suffix(min_prob=0.2, size=9, factor=1.0), [1, 2, 1, 2, 1, 2, 1, 3, 1])
    assert drafter.propose(s).tokens.tolist() == [2, 3]
    drafter, s = started(Suffix(), [4, 5, 6])
    assert drafter.propose(s).reason == "no match"


# --- lookahead


def window_rows(drafter, draft):
    """(level, column) of each probe, by its parents alone."""
    places = {}
    for node in range(len(draft)):
        if draft.is_probe(node):
            path = [p for p in draft.path(node)]
            places[node] = path
    return places


@torch.inference_mode()
def test_a_window_token_sees_the_lowest_level_up_to_its_column_and_its_column_below():
    target, drafter = tiny("llama"), Lookahead(window=3, ngram=4, guesses=2, seeded=False)
    session, s = target.session(99), state([5, 6, 7, 8, 6, 7], vocab=VOCAB)
    session.prefill(s.ids)
    drafter.begin(s)
    checked = 0
    for _ in range(6):
        draft = drafter.propose(s)
        scores = session.score(s.ids[-1], draft)
        levels, at = [list(level) for level in draft.note["window"]], len(draft) - sum(map(len, draft.note["window"]))
        for level, row in enumerate(levels):
            for column, token in enumerate(row):
                column += level == 0  # column 0 of the lowest level is the root
                below = [levels[0][:column]] + [[levels[one][column]] for one in range(1, level)]
                text = s.ids + [one for part in below for one in part] + ([token] if level else [])
                assert draft.is_probe(at) and int(draft.tokens[at]) == token
                alone = target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
                torch.testing.assert_close(scores.logits[at + 1], alone, atol=1e-4, rtol=1e-4)
                at, checked = at + 1, checked + 1
        token = int(scores.logits[0].argmax())
        session.commit(())
        s.ids.append(token)
        s.new = 1
        drafter.accept(s, Verdict((), token, "bonus", (), 0.5, None), scores)
    assert [len(level) for level in drafter._levels] == [2, 3, 3] and checked > 30


def test_the_window_climbs_and_leaves_ngrams_in_the_pool():
    """By hand, on a target that says one more than what it read."""
    counting = ToyTarget(torch.eye(40).roll(1, 1)[:, :40].double() * 50)
    drafter = Lookahead(window=3, ngram=3, guesses=2, seeded=False)
    _, its = run(counting, drafter, [1], GREEDY, Limits(20))
    first, second, third = its[:3]
    assert first.note["window"] == [[1, 1, 1]]  # the prompt is all there is to fill it with
    assert second.note["window"] == [[1, 1], [2, 2, 2]]  # what it said, less the column that became text
    assert third.note["window"] == [[2, 2], [3, 3, 3]] and third.note["pool_size"] == 2
    assert third.root == 3 and third.note["guesses"] == []
    assert all(node.probe for it in (first, second) for node in it.nodes)
    assert emitted(its) == list(range(2, 22))


def test_the_pool_drops_the_longest_unused():
    drafter, s = started(Lookahead(ngram=3, guesses=2, seeded=False), [1])
    for followed in ((2, 3), (4, 5), (2, 3), (6, 7)):
        drafter._hold(1, followed)
    assert drafter._pool == {1: [(6, 7), (2, 3)]}
    draft = drafter.propose(s)
    s.ids, s.new = [1, 2, 3, 9], 3
    read = (1, *draft.tokens.tolist())
    drafter.accept(s, Verdict((0, 1), 9, "bonus", (), 0.5, None), Scores(torch.zeros(len(read), 12), {}, read))
    assert drafter._pool[1] == [(2, 3), (6, 7)]  # used, so it is the newest


def test_the_pool_is_seeded_from_the_prompt_if_wanted():
    for seeded in (True, False):
        drafter, s = started(Lookahead(ngram=3, seeded=seeded, size=9), [1, 2, 3, 1, 4, 5, 1])
        note = drafter.propose(s).note
        assert note["guesses"] == ([[4, 5], [2, 3]] if seeded else []) and note["pool"] == 2 * seeded
        assert note["pool_size"] == (5 if seeded else 0)


def test_guesses_are_one_tree_and_a_whole_accepted_one_brings_a_bonus():
    looped = ToyTarget(torch.eye(6).roll(1, 1).double() * 50)  # 0 1 2 3 4 5 0 ...
    drafter = Lookahead(window=2, ngram=4, guesses=4, size=8)
    _, its = run(looped, drafter, [0, 1, 2, 5, 1, 2, 3, 4, 5, 0, 1], GREEDY, Limits(30))
    first = its[0]
    candidates = [node for node in first.nodes if not node.probe]
    assert first.note["guesses"] == [[2, 3, 4], [2, 5, 1]] and len(candidates) == 5  # 2 is tried once
    assert [first.nodes[i].token for i in first.path] == [2, 3, 4] and first.kind == "bonus" and first.token == 5
    assert all(not it.nodes[test.node].probe for it in its for test in it.tests)


def test_no_window_where_it_would_pass_the_end():
    target = tiny("gpt2")  # whose positions end with its context
    _, its = run(target, Lookahead(window=4, ngram=4), prompt_ids(40), GREEDY, Limits(99))
    assert its[-1].stop == "context"
    assert any(node.probe for node in its[0].nodes) and not any(node.probe for node in its[-1].nodes)


def test_jacobi_is_two_gram_lookahead():
    """Against the fixed-point iteration written out: all guesses at once become what the model says after those before them."""
    target, sampling = ToyTarget(random_table(3, 1, seed=5)), GREEDY
    drafter = Lookahead(window=5, ngram=2)
    _, its = run(target, drafter, [0, 1, 2], sampling, Limits(40))
    guesses = None
    for it in its:
        tokens = [node.token for node in it.nodes]
        if guesses is not None:
            assert tokens[: len(guesses)] == guesses[: len(tokens)]
        said = [int(target.row([token]).argmax()) for token in (it.root, *tokens)]
        right = next((i for i, token in enumerate(tokens) if token != said[i]), len(tokens))
        assert it.emitted + it.discarded == said[: right + 1] and not any(node.probe for node in it.nodes)
        guesses = said[right + 1 :]
    assert emitted(its) == plain_ids(target, [0, 1, 2], sampling, Limits(40)) and any(it.path for it in its)


# --- early exit


@pytest.mark.parametrize("kind", ["llama", "qwen2 with windows", "gemma3", "gpt2", "qwen3"])
@pytest.mark.parametrize("keep", [(0,), (1,), (0, 2), (1, 2, 3)])
@torch.inference_mode()
def test_a_shallow_model_is_its_layers_and_leaves_the_target_alone(kind, keep):
    types = ["sliding_attention", "full_attention"] * 2
    shape = {"n_layer": 4} if kind == "gpt2" else {"num_hidden_layers": 4} | ({"layer_types": types} if kind == "gemma3" else {})
    model = tiny_model(kind, 3, **shape)
    target = Target(kind, model, Letters())
    ids = prompt_ids(20)
    before = target.model(input_ids=torch.tensor([ids]), use_cache=False).logits
    shallow = target.shallow(keep)
    session = shallow.session(40)
    session.prefill(ids[:15])
    ours = session.forward(ids[14:], tuple(range(-1, 5))).logits
    # by hand: a model of so many layers, filled with those of the first one
    types = getattr(model.config, "layer_types", None)
    small = {"n_layer": len(keep)} if kind == "gpt2" else {"num_hidden_layers": len(keep)}
    again = tiny_model(kind, 3, **small | ({"layer_types": [types[i] for i in keep]} if types else {}))
    source = tiny_model(kind, 3, **shape)
    listed = "h" if kind == "gpt2" else "layers"
    again.load_state_dict({k: v for k, v in source.state_dict().items() if f".{listed}." not in k}, strict=False)
    for new, old in enumerate(keep):
        getattr(again.get_decoder(), listed)[new].load_state_dict(getattr(source.get_decoder(), listed)[old].state_dict())
    theirs = again(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 14:]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert torch.equal(target.model(input_ids=torch.tensor([ids]), use_cache=False).logits, before)
    assert shallow.config.num_hidden_layers == len(keep) and target.config.num_hidden_layers == 4


def test_which_layers_draft():
    assert kept(30, 0.5, "first") == list(range(15)) and kept(2, 0.95, "first") == [0] and kept(1, 0.5, "first") == [0]
    assert kept(30, 2 / 3, "ends") == [*range(12), *range(22, 30)]
    for count in (1, 2, 3, 4, 12, 30, 80):
        for share in (0.05, 0.3, 0.5, 0.7, 0.95):
            for keep in ("first", "ends"):
                found = kept(count, share, keep)
                assert found == sorted(set(found)) and 1 <= len(found) < max(count, 2) and set(found) <= set(range(count))


def test_early_exit_weighs_nothing_and_drafts_what_its_layers_say():
    target = tiny("llama")
    shallow = target.shallow([0])
    ours = {id(parameter) for parameter in shallow.model.parameters()}
    assert ours < {id(parameter) for parameter in target.model.parameters()} or ours <= {id(p) for p in target.model.parameters()}
    _, alone = run(target, DraftModel(shallow, gamma=3, confidence=0.0), prompt_ids(9), GREEDY, Limits(20))
    _, its = run(target, EarlyExit(target, share=0.5, keep="first", gamma=3, confidence=0.0), prompt_ids(9), GREEDY, Limits(20))
    assert [[n.token for n in it.nodes] for it in its] == [[n.token for n in it.nodes] for it in alone]


# --- several in one tree


class Told:
    """A drafter that proposes what it is given and remembers what it was told."""

    name, source, lossless = "told", "", True

    def __init__(self, draft):
        self.draft, self.told = draft, []

    def taps(self, config):
        return ()

    def begin(self, state):
        self.told.clear()

    def propose(self, state):
        return self.draft

    def accept(self, state, verdict, scores):
        self.told.append((list(state.ids), verdict, scores))


def test_every_part_is_told_of_every_round():
    other = Told(tree([3, 4, 9], [-1, 0, -1], note={"own": [0.9, 0.9, 0.2]}))
    drafter = Hybrid(other=lambda: other, enough=0.0)
    _, its = run(ToyTarget(random_table(12, 1, seed=5)), drafter, [1, 2, 3, 1, 2], GREEDY, Limits(12))
    assert len(other.told) == len(its)
    ids = [1, 2, 3, 1, 2]
    for it, (told, verdict, scores) in zip(its, other.told, strict=True):
        ids = ids + it.emitted
        assert told == ids and scores.tokens == (it.root, *(node.token for node in it.nodes)) and list(verdict.path) == it.path
    assert drafter._suffix._ids == ids and drafter._recycled._tail == tuple(ids[-3:])


def test_parts_are_merged_and_named():
    other = Told(tree([3, 7, 8], [-1, -1, 1], note={"own": [0.95, 0.95, 0.95]}))
    drafter, s = started(Hybrid(other=lambda: other, enough=0.0, size=12), [1, 2, 3, 1, 2])
    draft = drafter.propose(s)
    firsts = [int(draft.tokens[i]) for i in draft.children(-1)]
    assert sorted(firsts) == [3, 7] and draft.q is None
    assert draft.note["part"][draft.tokens.tolist().index(8)] == "told" and {"suffix", "recycled", "told"} >= set(draft.note["part"])


def test_the_head_is_not_asked_where_lookups_promise_enough():
    other = Told(chain([7]))
    drafter, s = started(Hybrid(other=lambda: other, enough=1.0), [1, 2, 3, 4, 5, 6] * 4)
    draft = drafter.propose(s)
    assert draft.passes == 0 and 7 not in draft.tokens.tolist() and len(draft) > 2
    other.draft = chain([7], passes=1)
    drafter.enough = 0.0
    assert drafter.propose(s).passes == 1


def test_a_part_that_draws_its_tokens_stays_lossless_in_the_tree():
    sampling = Sampling(temperature=1.0)
    drafter = Hybrid(other=functools.partial(DraftModel, DRAFT, gamma=2, confidence=0.0), enough=0.0, size=4)
    law = decode_law(TOY, drafter, sampling, 3, prompt=(0, 1, 2, 0, 1))
    assert distance(law, true_law(TOY, sampling, 3, prompt=(0, 1, 2, 0, 1))) <= 1e-12


def test_probes_and_repeated_siblings_of_a_part_are_left_out():
    offered = Offered()
    offered.take(tree([3, 3, 4, 5], [-1, -1, 0, 2], probe=(False, False, False, True)))
    assert [list(offered.after(path).tokens) for path in ((), (3,), (3, 4))] == [[3], [4], []]


def test_a_folder_of_no_head_is_one_sentence(tmp_path):
    from specviz.session import ModelError

    with pytest.raises(ModelError):
        Hybrid.load(tmp_path, tiny("llama"))
    assert isinstance(Hybrid().other(), Plain) and dataclasses.is_dataclass(Hybrid)


def test_loops_of_decode_stay_open_to_all(made="lookups"):
    """A run that is given up in the middle leaves nothing behind that the next one would see."""
    target, drafter = tiny("llama"), MADE[made](tiny("llama"))
    records = decode(target, drafter, "", GREEDY, Limits(30), prompt_ids=[1, 2, 3, 1, 2])
    for _ in range(4):
        next(records)
    whole = [it.emitted for it in run(target, drafter, [4, 5, 4, 5], GREEDY, Limits(20))[1]]
    assert whole == [it.emitted for it in run(target, MADE[made](target), [4, 5, 4, 5], GREEDY, Limits(20))[1]]
