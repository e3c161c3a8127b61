"""Drafters that only tests use: random trees of each kind, wrong ones for negative controls, and partly right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.session import Target
from specviz.toy import ToyTarget
from specviz.tree import chain, empty, tree


@dataclass
class TreeDrafter:
    """Grows a tree of the given widths from a table model. kind: "fixed" (top tokens, q None), "replace", "without"."""

    model: ToyTarget | Target
    widths: tuple[int, ...] = (2, 1)
    kind: str = "fixed"

    name: ClassVar[str] = "tree"
    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @property
    def shape(self):
        return "chain" if set(self.widths) == {1} else "tree"

    def taps(self, config):
        return ()

    def begin(self, state):
        self._session = self.model.session(len(state.ids) + 64)
        self._session.prefill(state.ids)

    def accept(self, state, verdict, scores):
        self._session.rewind(min(self._session.length, len(state.ids) - 1))

    def logits(self, state, path):
        base = self._session.length
        feed = [*state.ids[base:], *path]
        logits = self._session.forward(feed, tuple(range(-1, len(feed) - 1)), rows_wanted=1).logits[0]
        self._session.rewind(base)
        return logits

    def law(self, state, path):
        return state.law(self.logits(state, path), path)

    def propose(self, state):
        tokens, parents, laws = [], [], []
        level: list[tuple[int, list[int]]] = [(-1, [])]
        for width in self.widths[: state.room]:
            grown = []
            for parent, path in level:
                law = self.law(state, path)
                for token, row in self.siblings(state, law, width):
                    tokens.append(token)
                    parents.append(parent)
                    laws.append(row)
                    grown.append((len(tokens) - 1, [*path, token]))
            level = grown
        if not tokens:
            return empty("clipped")
        return tree(tokens, parents, None if self.kind == "fixed" else laws, passes=1)

    def siblings(self, state, law, width):
        if self.kind == "fixed":
            return [(int(t), law) for t in law.topk(width).indices if law[t] > 0]
        found = []
        for _ in range(width):
            if law.sum() <= 0:
                break
            row = law / law.sum()
            token = state.coins.draw(row)[1]
            found.append((token, row))
            if self.kind == "without":
                law = row.clone()
                law[token] = 0
        return found


@dataclass
class TopTree(TreeDrafter):
    """Takes the likeliest tokens before any settings, so that it branches at temperature 0 too."""

    def law(self, state, path):
        return self.logits(state, path).softmax(-1)


@dataclass
class ArgmaxWithSoftmaxQ(TreeDrafter):
    """Wrong: takes the best token, claims it was drawn from the softmax."""

    def siblings(self, state, law, width):
        return [(int(law.argmax()), law)]


@dataclass
class RawTop(TreeDrafter):
    """Wrong: takes the best tokens, claims that they were drawn."""

    def siblings(self, state, law, width):
        return [(int(token), law) for token in law.topk(width).indices if law[token] > 0]


@dataclass
class StaleQ(TreeDrafter):
    """Wrong: draws without replacement, hands over the law before anything was taken out."""

    def siblings(self, state, law, width):
        return [(token, law) for token, _ in super().siblings(state, law, width)]


@dataclass
class PrunedAfterDraw(TreeDrafter):
    """Wrong: draws one sibling more than wanted and keeps the likeliest ones."""

    def siblings(self, state, law, width):
        drawn = super().siblings(state, law, width + 1)
        return sorted(drawn, key=lambda pair: -float(law[pair[0]]))[:width]


@dataclass
class DropsUnsure(TreeDrafter):
    """Wrong: a chain that leaves out its newest token when the draft gave it little."""

    threshold: float = 0.3

    def propose(self, state):
        tokens, laws = [], []
        for _ in range(min(len(self.widths), state.room)):
            law = self.law(state, tokens)
            token = state.coins.draw(law)[1]
            if float(law[token]) < self.threshold:
                break
            tokens.append(token)
            laws.append(law)
        return chain(tokens, laws) if tokens else empty()


@dataclass
class OtherTemperatureQ(TreeDrafter):
    """Wrong: draws from a flattened law, hands over the sharp one."""

    def siblings(self, state, law, width):
        flat = law.sqrt() / law.sqrt().sum()
        return [(state.coins.draw(flat)[1], law) for _ in range(width)]


@dataclass
class PartlyRight:
    """A chain whose tokens are the target's own greedy continuation with probability `right`, and anything else otherwise."""

    answer: list[int]  # the greedy continuation
    start: int  # length of the prompt
    vocab: int
    right: float
    gamma: int

    name: ClassVar[str] = "partly_right"
    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "chain"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def taps(self, config):
        return ()

    def begin(self, state):
        self._generator = torch.Generator().manual_seed(self.gamma)

    def propose(self, state):
        at = len(state.ids) - self.start
        tokens = self.answer[at : at + min(self.gamma, state.room)]
        wrong = torch.rand(len(tokens), generator=self._generator) >= self.right
        tokens = [(t + 1) % self.vocab if w else t for t, w in zip(tokens, wrong.tolist(), strict=True)]
        return chain(tokens) if tokens else empty()

    def accept(self, state, verdict, scores):
        pass
