"""Real runs on table models whose rounds are trees, for the tests of what is shown of them. Nothing here is made up by hand."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from specviz.decode import Limits, decode
from specviz.drafters import METHODS
from specviz.sampling import Sampling
from specviz.toy import ToyTarget, random_table
from specviz.trace import Trace
from specviz.tree import Draft
from tests.treedrafters import TopTree, TreeDrafter

PROMPT = [2, 7, 1, 9]
SOME = Limits(max_new=24)


@functools.cache
def letters(seed: int = 0, sharp: float = 1.0) -> ToyTarget:
    return ToyTarget(sharp * random_table(26, 2, seed), order=2)


@functools.cache
def often_right(sharp: float = 1.0) -> ToyTarget:
    """A draft that is the target, blurred."""
    return ToyTarget(sharp * (0.75 * random_table(26, 2, 0) + 0.25 * random_table(26, 2, 1)), order=2)


@dataclass
class WithProbes(TopTree):
    """Scores, behind its candidates, a probe after the root and one after that: what a lookahead window looks like to the loop."""

    def propose(self, state):
        draft = super().propose(state)
        if not len(draft):
            return draft
        count = len(draft)
        tokens = draft.tokens.new_tensor([*draft.tokens.tolist(), 3, 4])
        note = {"window": [[3], [4]], "guesses": [draft.tokens[draft.path(count - 1)].tolist()], "pool": 1, "pool_size": 7}
        return Draft(tokens, (*draft.parents, -1, count), probe=(*(False,) * count, True, True), passes=1, note={**note, "named": [3, 4]})


@dataclass
class Believing(TopTree):
    """Notes how sure it is of each node, as the methods that grow trees by confidence do."""

    def propose(self, state):
        draft = super().propose(state)
        own = [float(self.law(state, draft.tokens[draft.path(parent)].tolist())[token])
               for token, parent in zip(draft.tokens, draft.parents, strict=True)]  # fmt: skip
        score: list[float] = []
        for mass, parent in zip(own, draft.parents, strict=True):
            score.append(mass * (score[parent] if parent >= 0 else 1.0))
        note = {"own": own, "score": score, "size": 0, "grown": 2 * len(draft), "taps": [0, 2, 4]}
        return replace(draft, note=note)


def traced(
    drafter, temperature: float = 0.0, rule: str = "token", seed: int = 7, limits: Limits = SOME, target=None, capture: int = 6
) -> Trace:
    header, *its = decode(
        target or letters(),
        drafter,
        "a toy",
        Sampling(temperature=temperature, seed=seed),
        limits,
        rule=rule,
        capture=capture,
        prompt_ids=PROMPT,
    )
    return Trace(header, its)


def fixed() -> Trace:
    """Fixed candidates at a temperature: u < p(x), and what siblings leave."""
    return traced(TreeDrafter(often_right(), (3, 2, 2), "fixed"), 0.8)


def drawn() -> Trace:
    """Siblings drawn without replacement, each with its own q."""
    return traced(TreeDrafter(often_right(), (3, 2), "without"), 1.0)


def greedy() -> Trace:
    return traced(Believing(often_right(), (3, 2, 1)))


def typical() -> Trace:
    """The rule that is not lossless, on fixed candidates."""
    return traced(TopTree(often_right(), (3, 2), "fixed"), 1.0, "typical")


def wide() -> Trace:
    """60 nodes."""
    return traced(TopTree(often_right(), (6, 3, 2), "fixed"))


def probes() -> Trace:
    return traced(WithProbes(often_right(), (2, 1), "fixed"))


def of(method: str, temperature: float = 0.0, **knobs) -> Trace:
    """A method of the program, untrained."""
    return traced(replace(METHODS[method].tiny(letters()), **knobs), temperature)
