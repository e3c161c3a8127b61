"""Choosing the nodes of a draft tree: against trying every subset, ties, limits, and when another draft pass is not made."""

from __future__ import annotations

import itertools
import random

import pytest

from specviz.drafters.grow import CERTAIN, EXAMPLES, START, USUAL, Experience, Grown, best, dynamic, static


def random_tree(seed: int, count: int) -> tuple[list[float], list[int]]:
    """Path probabilities that fall from parent to child."""
    generator = random.Random(seed)
    parents, scores = [], []
    for i in range(count):
        parents.append(generator.randrange(-1, i))
        scores.append(generator.random() * (scores[parents[i]] if parents[i] >= 0 else 1.0))
    return scores, parents


def closed(kept, parents) -> bool:
    return all(parents[i] < 0 or parents[i] in kept for i in kept)


def closed_sets(parents):
    nodes = range(len(parents))
    for size in range(len(parents) + 1):
        yield from (kept for kept in itertools.combinations(nodes, size) if closed(kept, parents))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1, 3, 6])
def test_the_best_of_a_size_is_the_best_of_all_closed_sets(seed, size):
    scores, parents = random_tree(seed, 9)
    kept = best(scores, parents, size, 0.045)
    assert kept == sorted(kept) and len(kept) == size and closed(kept, parents)
    most = max(sum(scores[i] for i in one) for one in closed_sets(parents) if len(one) == size)
    assert sum(scores[i] for i in kept) == pytest.approx(most, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("row_cost", [0.005, 0.045, 0.2, 1.0])
@pytest.mark.parametrize(("spent", "before"), [(0.0, (0.0, 0.0)), (0.3, (0.0, 0.0)), (0.2, (40.0, 20.0))])
def test_the_automatic_size_is_the_fastest_of_all_closed_sets(seed, row_cost, spent, before):
    scores, parents = random_tree(seed, 9)

    def rate(kept):
        return (before[0] + 1 + sum(scores[i] for i in kept)) / (before[1] + 1 + spent + row_cost * len(kept))

    kept = best(scores, parents, 0, row_cost, spent, before)
    assert kept == sorted(kept) and closed(kept, parents)
    assert rate(kept) == pytest.approx(max(map(rate, closed_sets(parents))), abs=1e-12)


def test_more_nodes_are_not_there_than_there_are():
    assert best([0.5, 0.2], [-1, 0], 60, 0.045) == [0, 1] and best([], [], 8, 0.045) == [] and best([], [], 0, 0.045) == []


def test_rows_that_cost_nothing_are_all_kept_and_dear_ones_are_not():
    scores, parents = random_tree(1, 30)
    assert best(scores, parents, 0, 0.0) == list(range(30))
    assert best(scores, parents, 0, 5.0) == []


@pytest.mark.parametrize("size", range(1, 7))
def test_of_equals_a_parent_comes_before_its_child(size):
    parents = [-1, 0, 1, -1, 3, 3]
    assert best([1.0] * 6, parents, size, 0.045) == list(range(size))


@pytest.mark.parametrize("size", range(7))
def test_a_child_that_claims_more_than_its_parent_never_stands_without_it(size):
    parents = [-1, 0, 0, 2, -1, 4]
    kept = best([0.2, 0.9, 0.95, 0.99, 0.3, 0.31], parents, size, 0.045)
    assert closed(kept, parents) and (size == 0 or len(kept) == min(size, 6))
    assert size != 2 or kept == [4, 5]


def test_a_fixed_tree_by_levels():
    parents, places = static(((0, 1), (1,), (0,), (0, 1, 2), (0, 0)))
    assert parents == (-1, -1, 0, 0, 3) and places == ((1, 0), (1, 1), (2, 0), (2, 1), (3, 2))
    assert static(()) == ((), ())


@pytest.mark.parametrize("choices", [((0, 0),), ((),), ((0,), (0,)), ((0,), (1, 0))])
def test_a_fixed_tree_needs_all_parents_once(choices):
    with pytest.raises(ValueError, match="once"):
        static(choices)


# --- what a run learns


def test_confidence_is_scaled_to_what_is_accepted():
    past = Experience()
    assert past.scales(1, 6) == [1.0] * 6 and past.usual(1, 0) == USUAL[0] and past.usual(9, 7) == USUAL[-1] and past.scales(1, 0) == []
    for i in range(100):
        past.children(1, [0.4, 0.2], 0 if i % 5 < 4 else 1)
    assert past.scales(1, 3) == pytest.approx([(80 + EXAMPLES) / (40 + EXAMPLES), 1.0, 1.0])
    assert past.usual(1, 0) == pytest.approx((80 + EXAMPLES * USUAL[0]) / (100 + EXAMPLES)) and past.scales(2, 1) == [
        1.0
    ]  # other depths have their own
    past.children(1, [0.1] * 6, 5)  # ranks from the fourth on are one
    assert past.scales(1, 6)[3:] == pytest.approx([(1 + EXAMPLES) / (0.3 + EXAMPLES)] * 3)


def test_old_rounds_fade():
    past = Experience()
    for _ in range(20):
        past.children(1, [0.9], None)
    seldom = past.usual(1, 0)
    for _ in range(500):
        past.round(1, 1.0)
    assert seldom < 0.1 < USUAL[0] - 0.001 < past.usual(1, 0) and past.tokens == START[0] + 500


def test_a_round_is_followed_as_far_as_the_candidates_go():
    past, grown = Experience(), Grown()
    grown.add(-1, [0.6, 0.3], [7, 8], past)
    grown.add(0, [0.5, 0.1], [3, 4], past)
    grown.add(1, [0.5], [3], past)
    assert grown.parents == [-1, -1, 0, 0, 1] and grown.depth == [1, 1, 2, 2, 2]
    assert grown.scores == pytest.approx([0.6, 0.3, 0.3, 0.06, 0.15])
    grown.learn(past, [7, 4, 9])
    assert past._counts == {(1, 0): [1, 1, 0.6], (1, 1): [1, 0, 0.3], (2, 0): [1, 0, 0.5], (2, 1): [1, 1, 0.1]}
    grown.learn(past, [5, 3])
    assert past._counts[1, 0][:2] == [2, 1] and past._counts[2, 0][0] == 1  # nothing after the first miss is known


def test_nothing_is_certain():
    grown = Grown()
    grown.add(-1, [1.0], [0], Experience())
    grown.add(0, [1.0], [0], Experience())
    assert grown.scores == pytest.approx([CERTAIN, CERTAIN**2]) and grown.scores[1] < grown.scores[0]


# --- growing


def grow(own=(0.6, 0.25, 0.1), width=3, depth=4, size=0, ends=(), row_cost=0.045, draft_cost=0.09, past=None):
    """A draft that believes the same after everything; tokens 0, 1, 2. Returns (grown, kept, what was expanded by pass)."""
    passes = []

    def expand(nodes, grown):
        passes.append(list(nodes))
        return [list(own)] * len(nodes), [list(range(len(own)))] * len(nodes)

    first = [list(own)], [list(range(len(own)))]
    knobs = {"width": width, "depth": depth, "size": size, "row_cost": row_cost, "draft_cost": draft_cost, "ends": ends}
    grown, kept = dynamic(first, expand, past=past or Experience(), **knobs)
    return grown, kept, passes


@pytest.mark.parametrize("size", [1, 2, 5, 13, 60])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_tree_of_a_given_size(size, depth):
    grown, kept, passes = grow(size=size, depth=depth)
    assert grown.passes == depth == len(passes) + 1 and max(grown.depth) == depth
    assert len(kept) == min(size, len(grown.tokens)) and closed(kept, grown.parents) and kept == sorted(kept)
    assert all(parent < i for i, parent in enumerate(grown.parents))
    for nodes in passes:  # the best of one level, no more than the width
        (level,) = {grown.depth[i] for i in nodes}
        others = [grown.scores[i] for i in range(len(grown.tokens)) if grown.depth[i] == level and i not in nodes]
        assert len(nodes) <= 3 and min(grown.scores[i] for i in nodes) >= max(others, default=0)
    siblings = {}
    for token, parent in zip(grown.tokens, grown.parents, strict=True):
        siblings.setdefault(parent, []).append(token)
    assert all(len(set(tokens)) == len(tokens) for tokens in siblings.values())


def test_nothing_grows_after_an_end_of_text():
    grown, _, passes = grow(size=60, ends=(0,))
    ended = {i for i, token in enumerate(grown.tokens) if token == 0}
    assert ended and not ended & set(grown.parents) and not ended & {i for nodes in passes for i in nodes}
    assert grow(own=(0.9,), size=60, ends=(0,))[0].passes == 1


def test_automatic_growth_stops_where_a_pass_cannot_pay():
    sure, unsure = grow(own=(0.9, 0.05), depth=6), grow(own=(0.2, 0.1), depth=6)
    assert sure[0].passes == 6 and unsure[0].passes == 1
    assert grow(own=(0.9, 0.05), depth=6, draft_cost=2.0)[0].passes == 1
    assert len(unsure[1]) < len(sure[1])


def test_automatic_growth_expands_only_what_may_be_kept():
    grown, kept, passes = grow(own=(0.8, 0.1, 0.004), depth=3)
    assert all(grown.scores[i] > 0.045 for nodes in passes for i in nodes)
    assert all(grown.tokens[i] != 2 for i in kept)


def test_a_draft_that_is_never_right_ends_with_no_tree_and_may_come_back():
    past = Experience()
    for _ in range(200):
        grown, kept, _ = grow(own=(0.3, 0.2), past=past, row_cost=0.1)
        grown.learn(past, [99])
        past.round(1, 1 + grown.spent)
    assert kept == [] and grown.passes == 1
    for _ in range(400):
        grown, kept, _ = grow(own=(0.3, 0.2), past=past, row_cost=0.1)
        grown.learn(past, [0, 0, 0])
    assert kept


def test_the_same_past_grows_the_same_tree():
    assert grow(own=(0.5, 0.3, 0.1))[0] == grow(own=(0.5, 0.3, 0.1))[0]
