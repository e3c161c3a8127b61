"""Theory against sums done by hand and against simulation-free identities."""

import itertools
import math

import pytest

from specviz import theory


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.9, 0.999999])
@pytest.mark.parametrize("gamma", [0, 1, 4, 16])
def test_expected_tokens_is_the_closed_form(alpha, gamma):
    assert theory.expected_tokens(alpha, gamma) == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha), rel=1e-9)


def test_expected_tokens_at_certainty_and_by_enumeration():
    assert theory.expected_tokens(1.0, 7) == 8
    alpha, gamma = 0.3, 4
    total = 0.0
    for outcome in itertools.product([True, False], repeat=gamma):
        accepted = next((i for i, passed in enumerate(outcome) if not passed), gamma)
        total += (accepted + 1) * math.prod(alpha if passed else 1 - alpha for passed in outcome)
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(total, abs=1e-12)
    assert theory.expected_from_positions([alpha] * gamma) == pytest.approx(total, abs=1e-12)


def test_expected_from_f5_positions_is_its_tau():
    assert theory.expected_from_positions([3 / 4, 2 / 3, 1 / 2, 1]) == pytest.approx(2.75)
    assert theory.expected_from_positions([]) == 1


def test_expected_tokens_of_a_tree():
    assert theory.expected_of_tree([], []) == 1
    assert theory.expected_of_tree([-1, 0, 1, 2], [3 / 4, 2 / 3, 1 / 2, 1]) == pytest.approx(2.75)  # a chain
    # two siblings, one with two children: 1 + .5 + .3 + .3 * .6 + .3 * .2
    parents, chances = [-1, -1, 1, 1], [0.5, 0.3, 0.6, 0.2]
    assert theory.expected_of_tree(parents, chances) == pytest.approx(2.04)
    total = 0.0  # the same over what can happen: which child of each node is accepted, if any
    for first, p in ((0, 0.5), (1, 0.3), (None, 0.2)):
        for second, q in ((2, 0.6), (3, 0.2), (None, 0.2)):
            total += p * q * (1 + (first is not None) + (first == 1 and second is not None))
    assert theory.expected_of_tree(parents, chances) == pytest.approx(total)
    with pytest.raises(ValueError):
        theory.expected_of_tree([-1], [1.5])
    with pytest.raises(ValueError):
        theory.expected_of_tree([-1, 0], [0.5])


def test_speedup_of_any_method_is_leviathans_for_a_chain():
    v = theory.cost_of_rows({5: 1.2, 9: 1.6})
    alpha, gamma, c = 0.8, 4, 0.05
    tau = theory.expected_tokens(alpha, gamma)
    assert theory.method_speedup(tau, gamma + 1, gamma, c, v, 0.1) == pytest.approx(theory.speedup(alpha, gamma, c, v, 0.1))
    assert theory.method_speedup(1.0, 1, 0, 0.0) == 1  # plain
    assert theory.method_speedup(2.0, 7.5, 1, 0.3, v) == pytest.approx(2 / (0.3 + 1.45))


@pytest.mark.parametrize("alpha, gamma", [(-0.1, 4), (1.1, 4), (math.nan, 4), (0.5, -1)])
def test_nonsense_is_refused(alpha, gamma):
    with pytest.raises(ValueError):
        theory.expected_tokens(alpha, gamma)


def test_speedup_is_leviathans_factor_in_his_ideal():
    alpha, gamma, c = 0.8, 5, 0.05
    assert theory.speedup(alpha, gamma, c) == pytest.approx((1 - alpha**6) / ((1 - alpha) * (gamma * c + 1)))
    assert theory.speedup(alpha, 0, c) == 1
    assert theory.speedup(alpha, gamma, c, v=lambda rows: 1 + 0.1 * (rows - 1)) == pytest.approx(theory.expected_tokens(alpha, 5) / 1.75)


def test_some_gamma_pays_exactly_when_alpha_exceeds_c():
    for alpha, c in itertools.product([0.05, 0.2, 0.5, 0.8], repeat=2):
        gamma, best = theory.best_gamma(alpha, c)
        assert (gamma > 0) == (alpha > c) == (best > 1)
        if alpha > c:
            assert best >= (1 + alpha) / (1 + c) - 1e-12


def test_best_gamma_is_the_top_of_the_curve():
    curve = theory.speedup_curve(0.7, 0.1, most=12)
    gamma, best = theory.best_gamma(0.7, 0.1, most=12)
    assert best == max(curve) == curve[gamma] and curve[0] == 1
    assert theory.best_gamma(0.0, 0.0) == (0, 1.0)  # equal to plain for every gamma: the smallest


@pytest.mark.parametrize("gamma, c, overhead", [(1, 0.3, 0.0), (4, 0.1, 0.0), (4, 0.5, 0.1), (16, 0.05, 0.2)])
def test_break_even_is_where_the_speedup_is_one(gamma, c, overhead):
    v = theory.cost_of_rows({5: 1.1, 17: 1.3})
    alpha = theory.break_even_alpha(gamma, c, v, overhead)
    assert theory.speedup(alpha, gamma, c, v, overhead) == pytest.approx(1, abs=1e-9)
    assert theory.speedup(alpha * 0.99, gamma, c, v, overhead) < 1


def test_break_even_at_the_ends():
    assert theory.break_even_alpha(4, 1.1) is None  # 5 tokens at best cost 5.4
    assert theory.break_even_alpha(4, 0.0) == 0.0  # drafting for nothing
    assert theory.break_even_alpha(4, 1.0) == pytest.approx(1.0)


def test_cost_of_rows_between_and_outside_its_points():
    v = theory.cost_of_rows({5: 1.2, 9: 1.6})
    assert [v(n) for n in (1, 3, 5, 7, 9, 33)] == pytest.approx([1, 1.1, 1.2, 1.4, 1.6, 1.6])
    assert theory.cost_of_rows({})(17) == 1


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.9, 1.0])
def test_alpha_from_tokens_inverts(alpha):
    assert theory.alpha_from_tokens(theory.expected_tokens(alpha, 6), [6]) == pytest.approx(alpha, abs=1e-9)
    mixed = (theory.expected_tokens(alpha, 4) + 3 * theory.expected_tokens(alpha, 0)) / 4
    assert theory.alpha_from_tokens(mixed, [4, 0, 0, 0]) == pytest.approx(alpha, abs=1e-9)
    assert theory.alpha_from_tokens(1.5, [0]) is None and theory.alpha_from_tokens(9.0, [6]) is None
