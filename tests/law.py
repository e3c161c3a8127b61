"""Exact laws by enumeration: a run is repeated once for every way its coins can fall, and the probabilities are added up."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch

from specviz.decode import Limits, decode
from specviz.sampling import Sampling
from specviz.toy import ToyTarget


class ForkedCoins:
    """Replays a list of branch numbers, then always takes the first branch; remembers what else was possible."""

    def __init__(self, prefix: tuple[int, ...]):
        self.prefix, self.taken, self.open, self.probability = prefix, [], [], 1.0

    def choose(self, weights: list[float]) -> int:
        at = len(self.taken)
        possible = [i for i, w in enumerate(weights) if w > 0]
        branch = self.prefix[at] if at < len(self.prefix) else possible[0]
        if at >= len(self.prefix):
            self.open += [(*self.taken, other) for other in possible[1:]]
        self.taken.append(branch)
        self.probability *= weights[branch]
        return branch

    def toss(self, threshold: float) -> tuple[float, bool]:
        heads = self.choose([threshold, 1.0 - threshold]) == 0
        return (0.0 if heads else 1.0), heads

    def draw(self, law: torch.Tensor) -> tuple[float, int]:
        law = law.double()
        return 0.5, self.choose((law / law.sum()).tolist())


def outcomes(run: Callable[[ForkedCoins], tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], float]]:
    todo: list[tuple[int, ...]] = [()]
    while todo:
        coins = ForkedCoins(todo.pop())
        result = run(coins)
        todo += coins.open
        yield result, coins.probability


def law_of(run: Callable[[ForkedCoins], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for result, probability in outcomes(run):
        law[result] += probability
    assert abs(sum(law.values()) - 1) < 1e-12, "the branches of a run must sum to one"
    return dict(law)


def remembering(sampling: Sampling, exact: bool = True) -> Sampling:
    """The same settings, each law computed once: runs ask for the same few laws over and over. exact: in float64, so that laws
    of a head that computes in float32 sum to one as closely as the enumeration needs it."""
    known: dict[tuple, torch.Tensor] = {}
    compute = sampling.probs

    def probs(logits, histories):
        logits = logits.double() if exact else logits
        key = (logits.shape, logits.numpy().tobytes(), *(history.numpy().tobytes() for history in histories))
        if key not in known:
            known[key] = compute(logits, histories)
        return known[key]

    sampling = copy.copy(sampling)
    object.__setattr__(sampling, "probs", probs)
    return sampling


def decode_law(target: ToyTarget, drafter, sampling: Sampling, max_new: int, rule: str = "token", stop=(), prompt=(0, 1, 2)) -> dict:
    """The joint law of everything that decode() emits, bonus tokens and stops included."""
    sampling = remembering(sampling)

    def run(coins: ForkedCoins) -> tuple[int, ...]:
        records = decode(target, drafter, "", sampling, Limits(max_new, stop), rule=rule, capture=0, prompt_ids=prompt, coins=coins)
        next(records)
        return tuple(token for iteration in records for token in iteration.emitted)

    return law_of(run)


def true_law(target, sampling: Sampling, max_new: int, stop=(), prompt=(0, 1, 2)) -> dict:
    """The law of plain decoding by multiplying its conditional laws, without the loop; row(ids) gives float[V] logits."""
    law: dict[tuple[int, ...], float] = {}

    def extend(ids: tuple[int, ...], probability: float) -> None:
        text = b"".join(target.token_bytes(token) for token in ids)
        ended = ids and (ids[-1] in target.stop_ids or any(s.encode() in text for s in stop))
        if len(ids) == max_new or ended or len(prompt) + len(ids) > target.context:
            law[ids] = probability
            return
        history = torch.tensor([*prompt, *ids])
        row = sampling.probs(target.row(history.tolist())[None].double(), [history])[0]
        for token, mass in enumerate((row / row.sum()).tolist()):
            if mass > 0:
                extend((*ids, token), probability * mass)

    extend((), 1.0)
    return law


def distance(a: dict, b: dict) -> float:
    """Largest difference of any outcome."""
    return max(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())


def total_variation(a: dict, b: dict) -> float:
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys()) / 2
