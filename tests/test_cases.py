"""Faults that users of other engines reported, as small runs with the right value. The ids are those of the project's list of cases."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from specviz.decode import Limits
from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.sampling import Sampling
from specviz.toy import ToyTarget
from specviz.tree import Draft, chain, empty, tree
from specviz.verify import LOSSLESS, RULES, SeededCoins
from tests.tinymodels import run

DRAWS = 20_000
EXACT = sorted(LOSSLESS)  # typical acceptance has another law, which tests/test_verify.py shows
P, Q = (0.6, 0.2, 0.1, 0.1), (0.7, 0.2, 0.05, 0.05)


def fixed(*law: float) -> ToyTarget:
    """The same law everywhere."""
    return ToyTarget(torch.tensor([law], dtype=torch.float64).log(), order=0)


def draws(rule: str, draft_of, p=P, count: int = DRAWS):
    """(frequency of each first token, acceptance, verdicts) of `count` blocks judged by a rule. draft_of(coins) -> Draft."""
    coins, laws = SeededCoins(1), torch.tensor(p, dtype=torch.float64)
    first, accepted, verdicts = Counter(), 0, []
    for _ in range(count):
        draft: Draft = draft_of(coins)
        verdict = RULES[rule](draft, laws.expand(len(draft) + 1, -1), coins)
        block = [*draft.tokens[list(verdict.path)].tolist(), verdict.token]
        first[block[0]] += 1
        accepted += bool(verdict.path)
        verdicts.append(verdict)
    return [first[token] / count for token in range(len(p))], accepted / count, verdicts


def sampled(q=Q):
    law = torch.tensor(q, dtype=torch.float64)
    return lambda coins: chain([coins.draw(law)[1]], [law])


def best(coins) -> Draft:
    return chain([0])


def both_best(coins) -> Draft:
    return tree([0, 1], [-1, -1])


def near(frequencies, want) -> bool:
    return all(abs(a - b) <= 0.01 for a, b in zip(frequencies, want, strict=True))


# --- F1: p = (.6, .2, .1, .1), q = (.7, .2, .05, .05), one drafted token


@pytest.mark.parametrize("rule", EXACT)
def test_f1_b14_drawn_drafts(rule):
    frequencies, rate, verdicts = draws(rule, sampled())
    assert near(frequencies, P) and abs(rate - 0.90) <= 0.01
    for verdict in verdicts:
        if verdict.kind == "recovered":
            torch.testing.assert_close(verdict.residual, torch.tensor([0, 0, 0.5, 0.5], dtype=torch.float64))
            assert verdict.token in (2, 3)


@pytest.mark.parametrize("rule", EXACT)
def test_f1_b17_a_draft_chosen_without_randomness(rule):
    frequencies, rate, verdicts = draws(rule, best)
    assert near(frequencies, P) and abs(rate - 0.60) <= 0.01
    rejected = next(verdict for verdict in verdicts if verdict.kind == "recovered")
    torch.testing.assert_close(rejected.residual, torch.tensor([0, 0.5, 0.25, 0.25], dtype=torch.float64))


def test_f1_b18_two_candidates_picked_without_randomness():
    """After a rejected sibling p is without it and rescaled: .2 becomes .5; accepted in all .6 + .2."""
    frequencies, rate, verdicts = draws("token", both_best)
    assert near(frequencies, P) and abs(rate - 0.80) <= 0.01
    seconds = [verdict.tests[1] for verdict in verdicts if len(verdict.tests) == 2]
    assert seconds and all(test.p == test.threshold == pytest.approx(0.5) and test.q == 1 for test in seconds)
    last = next(verdict for verdict in verdicts if verdict.kind == "recovered")
    torch.testing.assert_close(last.residual, torch.tensor([0, 0, 0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("rule", EXACT)
def test_f1_the_draft_is_always_wrong(rule):
    frequencies, rate, _ = draws(rule, sampled((0.05, 0.05, 0.2, 0.7)), count=10_000)
    assert near(frequencies, P) and abs(rate - 0.30) <= 0.01


@pytest.mark.parametrize("rule", EXACT)
def test_f1_nothing_drafted(rule):
    frequencies, rate, _ = draws(rule, lambda coins: empty(), count=10_000)
    assert near(frequencies, P) and rate == 0


def test_f1_through_the_whole_loop():
    """Tokens of a long run on fixed laws are independent draws from p."""
    sampling = Sampling(temperature=1.0, seed=1)
    for rule, drafter in (
        ("token", DraftModel(fixed(*Q), gamma=3, confidence=0.0)),
        ("block", DraftModel(fixed(*Q), gamma=3, confidence=0.0)),
        ("token", PromptLookup()),
    ):
        _, rounds = run(fixed(*P), drafter, [0, 1, 0, 1], sampling, Limits(4000), rule=rule, capture=0)
        tokens = [token for it in rounds for token in it.emitted][:4000]
        for token, p in enumerate(P):
            assert abs(tokens.count(token) / len(tokens) - p) < 0.03


def test_b15_filtered_laws():
    p, q = (0.5, 0.3, 0.15, 0.05), (0.4, 0.35, 0.15, 0.1)
    sampling = Sampling(temperature=1.0, top_k=2)
    p, q = (tuple(sampling.probs(torch.tensor([law], dtype=torch.float64).log(), [])[0].tolist()) for law in (p, q))
    frequencies, rate, _ = draws("token", sampled(q), p)
    assert near(frequencies, (0.625, 0.375, 0, 0)) and abs(rate - 0.908) <= 0.01


def test_the_longer_chain_block_verification_accepts_more():
    """Two drafted tokens: the same law, and never fewer accepted on average."""
    law = torch.tensor(Q, dtype=torch.float64)

    def two(coins):
        return chain([coins.draw(law)[1], coins.draw(law)[1]], [law, law])

    counts = {}
    for rule in EXACT:
        frequencies, _, verdicts = draws(rule, two)
        assert near(frequencies, P)
        counts[rule] = sum(len(verdict.path) for verdict in verdicts) / DRAWS
    assert abs(counts["token"] - (0.9 + 0.81)) < 0.02 and counts["block"] >= counts["token"] - 0.005


# --- edges of a test


class Fixed:
    """Coins that always show the same uniform."""

    def __init__(self, u: float):
        self.u = u

    def toss(self, threshold):
        return self.u, self.u < threshold

    def draw(self, law):
        from specviz.verify import pick

        return self.u, pick(law, self.u)


@pytest.mark.parametrize("rule", EXACT)
def test_u_at_its_ends(rule):
    p = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).expand(2, -1)
    q = [torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)]
    for u in (0.0, 1 - 2**-53):
        wrong = RULES[rule](chain([0], q), p, Fixed(u))
        assert not wrong.path and wrong.token == 1 and wrong.kind == "recovered", "what p rules out is never accepted, not at u = 0 either"
        right = RULES[rule](chain([1], q), p, Fixed(u))
        assert right.path == (0,) and right.token == 1 and right.kind == "bonus", "what is accepted with certainty always is"


@pytest.mark.parametrize("rule", EXACT)
def test_a_token_that_the_draft_could_not_have_drawn_is_rejected(rule):
    p = torch.tensor([0.5, 0.5], dtype=torch.float64).expand(2, -1)
    verdict = RULES[rule](chain([0], [torch.tensor([0.0, 1.0], dtype=torch.float64)]), p, Fixed(0.0))
    assert not verdict.path and verdict.tests[0].threshold == 0 and verdict.token == 0


@pytest.mark.parametrize("rule", EXACT)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_b20_p_equals_q(rule, dtype):
    law = torch.tensor([0.3, 0.3, 0.4]).to(dtype).float()

    class Never(SeededCoins):
        def toss(self, threshold):
            return 1.0, False

    verdict = RULES[rule](chain([1], [law]), law.expand(2, -1), Never(3))
    assert verdict.fell_back and verdict.kind == "recovered" and bool(torch.isfinite(verdict.residual).all())
    torch.testing.assert_close(verdict.residual, law.double())


@pytest.mark.parametrize("kind", ["same token twice", "more siblings than mass"])
def test_siblings_that_leave_nothing(kind):
    p = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    tokens = [1, 1] if kind == "same token twice" else [0, 2, 3]
    for seed in range(20):
        verdict = RULES["token"](tree(tokens, [-1] * len(tokens)), p.expand(len(tokens) + 1, -1), SeededCoins(seed))
        assert verdict.token == 1 and len(verdict.path) == (1 if kind == "same token twice" else 0)


def test_token_0_is_a_token():
    _, rounds = run(fixed(1.0, 1e-9), DraftModel(fixed(1.0, 1e-9), gamma=2, confidence=0.0), [0], Sampling(), Limits(7))
    assert [token for it in rounds for token in it.emitted] == [0] * 7 and all(len(it.path) == len(it.nodes) for it in rounds)


# --- what is shown


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_b23_both_laws_are_kept_and_named(temperature):
    header, (it,) = run(fixed(*P), Plain(), [0], Sampling(temperature=temperature, top_k=2, seed=3), Limits(1))
    (row,) = it.rows
    model = dict(zip(row.ids, row.model, strict=True))
    assert model == pytest.approx(dict(enumerate(P)), abs=1e-6) and header.sampling["temperature"] == temperature
    after = dict(zip(row.ids, row.p, strict=True))
    if temperature == 0:
        assert after == {0: 1, 1: 0, 2: 0, 3: 0} and row.ids[0] == 0
    else:
        weights = [p ** (1 / temperature) for p in P[:2]]
        assert [after[0], after[1]] == pytest.approx([w / sum(weights) for w in weights], abs=1e-6) and after[2] == after[3] == 0
