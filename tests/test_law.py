"""Losslessness as a law: the joint law of everything emitted equals plain decoding's to 1e-12, and wrong rules fail the same test."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import specviz.decode as loop
from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from specviz.tree import Draft
from specviz.verify import Toss, Verdict, residual_of, token_rule
from tests.law import decode_law, distance, total_variation, true_law
from tests.treedrafters import ArgmaxWithSoftmaxQ, DropsUnsure, OtherTemperatureQ, PrunedAfterDraw, StaleQ, TreeDrafter

TARGET = ToyTarget(random_table(4, 2, seed=1), order=2)
DRAFT = ToyTarget(random_table(4, 1, seed=2), order=1)
SETTINGS = {
    "T=1": Sampling(temperature=1.0),
    "T=0.7": Sampling(temperature=0.7),
    "T=0": Sampling(),
    "top-k": Sampling(temperature=1.0, top_k=2),
    "top-p": Sampling(temperature=1.3, top_p=0.8),
    "min-p": Sampling(temperature=1.0, min_p=0.2),
    "penalty": Sampling(temperature=0.9, repetition_penalty=1.4),
}
DRAFTERS = {
    "plain": lambda: Plain(),
    "chain": lambda: DraftModel(DRAFT, gamma=2, confidence=0.0),
    "heuristic": lambda: DraftModel(DRAFT, gamma=2, adaptive="heuristic", confidence=0.0),
    "confidence": lambda: DraftModel(DRAFT, gamma=3, confidence=0.4),
    "lookup": lambda: PromptLookup(gamma=2, ngram=2),
    "fixed siblings": lambda: TreeDrafter(DRAFT, (3, 2), "fixed"),
    "with replacement": lambda: TreeDrafter(DRAFT, (2, 1), "replace"),
    "without replacement": lambda: TreeDrafter(DRAFT, (2, 1), "without"),
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_joint_law_is_plain_decodings(drafter, settings):
    sampling = SETTINGS[settings]
    assert distance(decode_law(TARGET, DRAFTERS[drafter](), sampling, 3), true_law(TARGET, sampling, 3)) <= 1e-12


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("drafter", ["plain", "chain", "confidence", "lookup"])
def test_block_verification(drafter, settings):
    sampling = SETTINGS[settings]
    assert distance(decode_law(TARGET, DRAFTERS[drafter](), sampling, 3, rule="block"), true_law(TARGET, sampling, 3)) <= 1e-12


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_stops_cut_where_plain_would(drafter):
    sampling = Sampling(temperature=1.0)
    ends = dataclasses.replace(TARGET, stop_ids=(2,))
    assert distance(decode_law(ends, DRAFTERS[drafter](), sampling, 3), true_law(ends, sampling, 3)) <= 1e-12
    assert (
        distance(decode_law(TARGET, DRAFTERS[drafter](), sampling, 3, stop=("ab", "d")), true_law(TARGET, sampling, 3, ("ab", "d")))
        <= 1e-12
    )
    short = dataclasses.replace(TARGET, context=5)
    assert distance(decode_law(short, DRAFTERS[drafter](), sampling, 9), true_law(short, sampling, 9)) <= 1e-12


@pytest.mark.parametrize(("vocab", "gamma"), [(3, 3), (5, 2)])
def test_deeper_and_wider_chains(vocab, gamma):
    target, draft = ToyTarget(random_table(vocab, 1, seed=3)), ToyTarget(random_table(vocab, 1, seed=4))
    sampling = Sampling(temperature=1.0)
    for rule in ("token", "block"):
        assert (
            distance(
                decode_law(target, DraftModel(draft, gamma=gamma, confidence=0.0), sampling, gamma + 1, rule),
                true_law(target, sampling, gamma + 1),
            )
            <= 1e-12
        )


@pytest.mark.parametrize(
    ("wrong", "at_least"),
    [
        (lambda: ArgmaxWithSoftmaxQ(DRAFT, (1, 1), "replace"), 0.1),
        (lambda: StaleQ(DRAFT, (3, 1), "without"), 0.01),
        (lambda: PrunedAfterDraw(DRAFT, (2,), "without"), 0.01),
        (lambda: DropsUnsure(DRAFT, (1, 1), "replace"), 0.01),
        (lambda: OtherTemperatureQ(DRAFT, (1, 1), "replace"), 0.01),
    ],
)
def test_wrong_drafters_fail(wrong, at_least):
    sampling = Sampling(temperature=1.0)
    assert total_variation(decode_law(TARGET, wrong(), sampling, 2), true_law(TARGET, sampling, 2)) > at_least


class Same:
    """Coins that hand out one and the same uniform twice: wrong, two positions share their luck."""

    def __init__(self, coins):
        self.coins, self.memory = coins, {}

    def toss(self, threshold):
        # one shared u is a partition of [0, 1): below the smallest threshold so far, or above
        low, high = self.memory.setdefault("u", [0.0, 1.0])
        if threshold <= low or threshold >= high:
            return low, threshold >= high
        _, heads = self.coins.toss((threshold - low) / (high - low))
        self.memory["u"] = [low, threshold] if heads else [threshold, high]
        return low, heads

    def draw(self, law):
        return self.coins.draw(law)


def always_accept(draft: Draft, p, coins) -> Verdict:
    u, token = coins.draw(p[len(draft)])
    return Verdict(tuple(range(len(draft))), token, "bonus", (), u, None)


def changed_token_rule(threshold=lambda p, q: min(1.0, p / q), residual=lambda p, q: residual_of(p, q, 0)[0], bonus=lambda p: p):
    """A chain's token rule with one piece replaced."""

    def rule(draft: Draft, p, coins) -> Verdict:
        tests: list[Toss] = []
        for i in range(len(draft)):
            x = int(draft.tokens[i])
            a = min(1.0, threshold(float(p[i][x]), float(draft.q[i, x])))
            u, accepted = coins.toss(a)
            tests.append(Toss(i, 0.0, 0.0, u, a, accepted))
            if not accepted:
                u, token = coins.draw(residual(p[i], draft.q[i]))
                return Verdict(tuple(range(i)), token, "recovered", tuple(tests), u, None)
        u, token = coins.draw(bonus(p[len(draft)]) if len(draft) else p[0])
        return Verdict(tuple(range(len(draft))), token, "bonus", tuple(tests), u, None)

    return rule


WRONG_RULES = {
    "always accept": always_accept,
    "residual is p": changed_token_rule(residual=lambda p, q: p),
    "residual is |p - q|": changed_token_rule(residual=lambda p, q: (p - q).abs()),
    "too generous": changed_token_rule(threshold=lambda p, q: p / (0.9 * q)),
    "bonus from the raw law": changed_token_rule(bonus=lambda p: p.sqrt() / p.sqrt().sum()),
    "shared u": lambda draft, p, coins: token_rule(draft, p, Same(coins)),
}


@pytest.mark.parametrize("wrong", WRONG_RULES)
def test_wrong_rules_fail(wrong, monkeypatch):
    monkeypatch.setitem(loop.RULES, "wrong", WRONG_RULES[wrong])
    sampling = Sampling(temperature=1.0)
    got = decode_law(TARGET, DraftModel(DRAFT, gamma=2, confidence=0.0), sampling, 3, rule="wrong")
    assert total_variation(got, true_law(TARGET, sampling, 3)) > 0.003


def test_the_changed_rule_itself_is_right():
    """The negative controls fail for what was changed, not for how they are written."""
    sampling = Sampling(temperature=1.0)
    loop.RULES["right"] = changed_token_rule()
    try:
        assert (
            distance(
                decode_law(TARGET, DraftModel(DRAFT, gamma=2, confidence=0.0), sampling, 3, rule="right"), true_law(TARGET, sampling, 3)
            )
            <= 1e-12
        )
    finally:
        del loop.RULES["right"]


def test_penalty_from_the_wrong_prefix_fails():
    class Forgetful(DraftModel):
        def propose(self, state):
            state = dataclasses.replace(state, ids=list(state.ids))
            law = state.law
            state.law = lambda logits, path: law(logits, [])
            return DraftModel.propose(self, state)

    class ForgetfulSampling(Sampling):
        def probs(self, logits, histories):
            return super().probs(logits, [h[:3] for h in histories])

    sampling, forgetful = Sampling(temperature=0.9, repetition_penalty=1.4), ForgetfulSampling(temperature=0.9, repetition_penalty=1.4)
    # q from a wrong prefix costs acceptance, never the law; p from a wrong prefix changes the law
    assert distance(decode_law(TARGET, Forgetful(DRAFT, gamma=2), sampling, 3), true_law(TARGET, sampling, 3)) <= 1e-12
    assert (
        total_variation(decode_law(TARGET, DraftModel(DRAFT, gamma=2, confidence=0.0), forgetful, 3), true_law(TARGET, sampling, 3)) > 0.003
    )


def test_one_node_of_random_laws():
    """200 random (p, q) a kind of siblings: the first token's law is p."""
    generator = torch.Generator().manual_seed(5)
    for _ in range(200):
        target = ToyTarget(torch.rand(1, 4, dtype=torch.float64, generator=generator).log(), order=0)
        draft = ToyTarget(torch.rand(1, 4, dtype=torch.float64, generator=generator).log(), order=0)
        for kind in ("fixed", "replace", "without"):
            sampling = Sampling(temperature=1.0)
            assert distance(decode_law(target, TreeDrafter(draft, (3,), kind), sampling, 1), true_law(target, sampling, 1)) <= 1e-12
