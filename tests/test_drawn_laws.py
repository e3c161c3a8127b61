"""Every entry of METHODS on a tiny transformer, with real coins: what it emits is tested against the law that the library alone gives.

The joint of three tokens, by Pearson's test. More of it: pytest tests/test_drawn_laws.py --runs 100000
"""

from __future__ import annotations

import functools

import pytest
import torch

from specviz.decode import Limits, decode
from specviz.drafters import METHODS
from specviz.sampling import Sampling
from specviz.session import Target
from specviz.toy import ToyTarget, random_table
from tests.chisquare import detectable, p_value, survival, survival_shifted
from tests.law import decode_law, remembering, total_variation, true_law
from tests.methodkit import Once, built, once, small
from tests.tinymodels import Letters, emitted, tiny_model
from tests.treedrafters import PrunedAfterDraw, RawTop, StaleQ, TreeDrafter

PROMPT = (0, 1, 2, 0, 1)
DRAWN = {
    "T=1": Sampling(temperature=1.0),
    "all settings": Sampling(temperature=0.9, top_k=4, top_p=0.97, min_p=0.02, repetition_penalty=1.2),
}
ERROR = 1e-6 / (len(METHODS) * len(DRAWN))  # of each test; 1e-6 of all together


class Rows(Once):
    """A tiny transformer with what true_law() asks of a target: rows by the library alone, without cache, loop or masks of ours."""

    @torch.inference_mode()
    def row(self, ids):
        return self.target.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def five(seed: int) -> Target:
    return Target("five", tiny_model("llama", seed=seed, vocab_size=5, hidden_size=16, intermediate_size=24), Letters())


@functools.cache
def drawn_target() -> Rows:
    return Rows(five(4))


@functools.cache
def drawn_draft() -> Once:
    return Once(five(12))


@functools.cache
def drawn_truth(settings: str) -> dict:
    return true_law(drawn_target(), DRAWN[settings], 3, prompt=PROMPT)


def draws(drafter, sampling: Sampling, runs: int) -> list[tuple[int, ...]]:
    """What that many seeds emit. Laws and passes that are known are looked up, by the content of all they depend on."""
    drafter, sampling, found = once(drafter), remembering(sampling, exact=False), []
    for seed in range(runs):
        object.__setattr__(sampling, "seed", seed)
        _, *rounds = decode(drawn_target(), drafter, "", sampling, Limits(3), capture=0, prompt_ids=PROMPT)
        found.append(tuple(emitted(rounds)))
    return found


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("settings", DRAWN)
def test_drawn_law_on_a_transformer(name, settings, runs):
    drafter = built(name, drawn_target(), **small(name, drawn_target(), 4))
    assert p_value(draws(drafter, DRAWN[settings], runs), drawn_truth(settings)) > ERROR


@pytest.mark.parametrize("settings", DRAWN)
def test_what_the_drawn_test_can_see(settings, runs):
    """Any wrong law of the counted outcomes fails with probability 0.99 if it is so far off in total variation: 0.13 at 2,000
    runs, 0.02 at 100,000. A wrong rule that favours some outcomes over others, as wrong rules do, is seen earlier."""
    assert detectable(drawn_truth(settings), runs, ERROR) < 6 / runs**0.5


# --- wrong trees fail both

WRONG = {
    "stale q": lambda model: StaleQ(model, (3, 1), "without"),
    "pruned after the draw": lambda model: PrunedAfterDraw(model, (2, 1), "without"),
    "best tokens judged by p/q": lambda model: RawTop(model, (2, 1), "without"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_trees_fail_both_tests(wrong, runs):
    toy, draft = ToyTarget(random_table(4, 2, seed=1), order=2), ToyTarget(random_table(4, 1, seed=2), order=1)
    assert total_variation(decode_law(toy, WRONG[wrong](draft), DRAWN["T=1"], 2), true_law(toy, DRAWN["T=1"], 2)) > 0.01
    assert p_value(draws(WRONG[wrong](drawn_draft()), DRAWN["T=1"], max(runs, 2000)), drawn_truth("T=1")) < ERROR


def test_right_trees_pass_where_the_wrong_ones_fail(runs):
    for kind in ("without", "replace", "fixed"):
        assert p_value(draws(TreeDrafter(drawn_draft(), (3, 1), kind), DRAWN["T=1"], runs), drawn_truth("T=1")) > ERROR


def test_the_test_itself():
    """Known quantiles, and a law tested against its own draws and against those of another at the distance it is said to see."""
    assert survival(18.307, 10) == pytest.approx(0.05, rel=1e-4) and survival(340, 215) == pytest.approx(1.1387649e-07, rel=1e-5)
    assert survival_shifted(160, 60, 120) == pytest.approx(0.78941607, rel=1e-6)  # both as SciPy's chi2 and ncx2 give them
    generator, count, runs, error = torch.Generator().manual_seed(3), 40, 2000, 1e-6
    even = torch.full((count,), 1 / count, dtype=torch.float64)
    law = {(i,): 1 / count for i in range(count)}
    far = detectable(law, runs, error)
    wrong = even * (1 + 2 * far * torch.tensor([1.0, -1.0]).repeat(count // 2))  # the hardest to see at this distance
    seen = 0
    for _ in range(200):
        assert p_value([(int(i),) for i in even.multinomial(runs, True, generator=generator)], law) > error
        seen += p_value([(int(i),) for i in wrong.multinomial(runs, True, generator=generator)], law) < error
    assert seen >= 190, "said to be seen in 99 of 100"
    assert p_value([(0,), (count,)], law) == 0
