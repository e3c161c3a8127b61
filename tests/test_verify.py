"""Rules one round at a time: what each accepts of a tree, and that typical acceptance is what it says, lossless at temperature 0 alone."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from specviz.drafters import DraftModel, Plain, PromptLookup
from specviz.laws import Laws
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from specviz.tree import chain, tree
from specviz.verify import LOSSLESS, RULES, SeededCoins, block_rule, residual_of, token_rule, typical_rule
from tests.law import decode_law, distance, total_variation, true_law
from tests.treedrafters import TreeDrafter

TARGET = ToyTarget(random_table(4, 2, seed=1), order=2)
DRAFT = ToyTarget(random_table(4, 1, seed=2), order=1)
DRAFTERS = {
    "plain": lambda: Plain(),
    "chain": lambda: DraftModel(DRAFT, gamma=2, confidence=0.0),
    "lookup": lambda: PromptLookup(gamma=2, ngram=2),
    "fixed siblings": lambda: TreeDrafter(DRAFT, (3, 2), "fixed"),
    "without replacement": lambda: TreeDrafter(DRAFT, (2, 1), "without"),
}
COLD = {"T=0": Sampling(), "penalty": Sampling(repetition_penalty=1.4)}


def laws(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("settings", COLD)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_typical_acceptance_is_plain_decoding_at_temperature_0(drafter, settings):
    sampling = COLD[settings]
    for target in (TARGET, dataclasses.replace(TARGET, stop_ids=(2,))):
        law = decode_law(target, DRAFTERS[drafter](), sampling, 4, rule="typical")
        assert distance(law, true_law(target, sampling, 4)) <= 1e-12


@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "plain"])
def test_typical_acceptance_fails_the_law_above_temperature_0(drafter):
    sampling = Sampling(temperature=1.0)
    law = decode_law(TARGET, DRAFTERS[drafter](), sampling, 3, rule="typical")
    assert total_variation(law, true_law(TARGET, sampling, 3)) > 0.02
    plain = decode_law(TARGET, Plain(), sampling, 3, rule="typical")
    assert distance(plain, true_law(TARGET, sampling, 3)) <= 1e-12  # without a draft no rule has anything to say


def test_only_lossless_rules_are_called_so():
    assert RULES.keys() - LOSSLESS == {"typical"} and RULES.keys() >= LOSSLESS


@pytest.mark.parametrize(
    ("row", "token", "accepted"),
    [
        ([0.97, 0.01, 0.01, 0.01], 0, True),
        ([0.97, 0.01, 0.01, 0.01], 1, False),  # sure law: limit 0.09
        ([0.25, 0.25, 0.25, 0.25], 3, True),  # no preference: limit 0.3 / 4
        ([0.08, 0.32, 0.3, 0.3], 0, False),  # limit 0.3 exp(-1.30) = 0.082
        ([0.09, 0.31, 0.3, 0.3], 0, True),
        ([0.9, 0.085, 0.01, 0.005], 1, False),  # limit 0.09
        ([0.9, 0.095, 0.004, 0.001], 1, True),
        ([0.5, 0.5, 0.0, 0.0], 2, False),
    ],
)
def test_the_limit_of_typical_acceptance(row, token, accepted):
    entropy = -sum(x * math.log(x) for x in row if x)
    assert (row[token] > min(0.09, 0.3 * math.exp(-entropy))) == accepted
    verdict = typical_rule(chain([token]), laws(row, [1, 0, 0, 0]), SeededCoins(0))
    assert (verdict.path == (0,)) == accepted
    (test,) = verdict.tests
    assert test.threshold == float(test.accepted) and test.accepted == (test.u < test.threshold) and test.q == 1.0


FLAT = [0.25] * 4
SURE = [[1.0 if i == k else 0.0 for i in range(4)] for k in range(4)]


def test_typical_acceptance_takes_the_longest_path():
    # 0 and 1 are both good enough after the root; only below 1 anything goes on
    draft = tree([0, 1, 2, 3], [-1, -1, 0, 1])
    p = laws([0.5, 0.5, 0, 0], SURE[0], SURE[3], FLAT, SURE[2])
    verdict = typical_rule(draft, p, SeededCoins(0))
    assert verdict.path == (1, 3) and verdict.token == 2 and verdict.kind == "bonus" and verdict.residual is None
    assert [(t.node, t.threshold) for t in verdict.tests] == [(1, 1.0), (3, 1.0)]  # 0 was neither accepted nor rejected


def test_of_paths_of_one_length_typical_acceptance_takes_the_likelier_and_of_equals_the_first():
    draft = tree([0, 1, 2], [-1, -1, -1])
    assert typical_rule(draft, laws([0.3, 0.4, 0.3, 0], FLAT, FLAT, FLAT), SeededCoins(0)).path == (1,)
    assert typical_rule(draft, laws([0.4, 0.4, 0.2, 0], FLAT, FLAT, FLAT), SeededCoins(0)).path == (0,)


def test_typical_acceptance_draws_from_p_itself_after_a_rejection():
    draft = tree([0, 1, 2, 3], [-1, -1, 1, 1])
    verdict = typical_rule(draft, laws([0, 0.9, 0.1, 0], FLAT, SURE[0], FLAT, FLAT), SeededCoins(0))
    assert verdict.path == (1,) and (verdict.token, verdict.kind, verdict.residual) == (0, "recovered", None)
    assert [(t.node, t.accepted) for t in verdict.tests] == [(0, False), (1, True), (2, False), (3, False)]


@pytest.mark.parametrize("rule", [token_rule, typical_rule])
def test_no_probe_is_judged_nor_what_stands_behind_one(rule):
    draft = tree([0, 0, 1, 1], [-1, -1, 0, 1], probe=(True, False, False, True))
    p = laws(SURE[0], SURE[1], SURE[1], FLAT, FLAT)
    verdict = rule(draft, p, SeededCoins(0))
    assert verdict.path == (1,) and verdict.token == 1 and [t.node for t in verdict.tests] == [1]
    with pytest.raises(ValueError):
        block_rule(draft, p, SeededCoins(0))


@pytest.mark.parametrize("rule", [token_rule, typical_rule])
def test_random_trees_at_temperature_0_give_the_targets_own_tokens(rule):
    """Duplicates and any order of nodes included: a path of the target's choices is accepted, and its next one follows."""
    generator = torch.Generator().manual_seed(1)
    for seed in range(200):
        count = int(torch.randint(1, 14, (), generator=generator))
        parents = [int(torch.randint(-1, i, (), generator=generator)) if i else -1 for i in range(count)]
        tokens = torch.randint(3, (count,), generator=generator).tolist()
        choice = torch.randint(3, (8,), generator=generator).tolist()  # of the target, by depth: duplicates have one law
        depth = [0]
        for parent in parents:
            depth.append(depth[parent + 1] + 1)
        p = torch.eye(3)[[choice[min(d, 7)] for d in depth]]
        verdict = rule(tree(tokens, parents), p, SeededCoins(seed))
        block = [*(tokens[i] for i in verdict.path), verdict.token]
        assert block == choice[: len(block)]
        seen = {-1}  # nodes that the target's own tokens lead to
        for i, parent in enumerate(parents):
            if parent in seen and tokens[i] == choice[min(depth[parent + 1], 7)]:
                seen.add(i)
        if rule is typical_rule:  # the token rule takes the first of two equal siblings, wherever that leads
            assert len(verdict.path) == max(depth[i + 1] for i in seen)
        assert verdict.path == () or set(verdict.path) <= seen
        assert bool(verdict.path) == (len(seen) > 1)


def test_a_residual_that_takes_nothing_away_is_the_law_itself():
    p = laws([0.0, 0.6, 0.4])[0]
    left, fell_back = residual_of(p, None, 0)
    assert left is p and not fell_back
    left, fell_back = residual_of(p, None, 1)
    assert left.tolist() == [0, 0, 1] and not fell_back and p.tolist() == laws([0.0, 0.6, 0.4])[0].tolist()
    left, fell_back = residual_of(laws([0.0, 1.0])[0], None, 1)
    assert fell_back and left.tolist() == [0, 1]


def test_only_the_laws_along_the_path_are_made():
    asked = []

    class Counting(Sampling):
        def probs(self, logits, histories):
            asked.append([history.tolist() for history in histories])
            return super().probs(logits, histories)

    draft = tree([0, 1, 2, 3, 0], [-1, -1, 1, 1, 2])
    logits = laws(SURE[1], FLAT, SURE[3], FLAT, SURE[2], FLAT).log()
    for rule in (token_rule, typical_rule):
        asked.clear()
        made = Laws(Counting(), draft, logits, None)
        assert rule(draft, made, SeededCoins(0)).path == (1, 3) and len(asked) == 3
        assert made[2] is made[2] and len(asked) == 3 and made[2].tolist() == SURE[3]
    asked.clear()
    made = Laws(Counting(repetition_penalty=1.1), draft, logits, torch.tensor([7, 8]))
    assert made[4].shape == (4,) and asked == [[[7, 8, 1, 3]]]
    with pytest.raises(FloatingPointError, match="row 3"):
        Laws(Sampling(), draft, logits * float("nan"), None)[3]
