"""Lookahead decoding (Fu et al. 2024): a window of guesses is iterated beside the text, and the n-grams that pass through it are tried.

The window has N - 1 levels. Level 0 is the root and W - 1 guesses after it; the token of level l in column j is what the
target said after the token of level l - 1 in that column, and sees the columns up to its own at level 0 and the lower
levels of its own column. Every pass moves the levels down by one and adds the target's answers on top (argmax, as in the
paper's code, at any temperature: they are only guesses). A column read from the bottom up is an n-gram: it enters a pool
under its first token, and what the pool holds under the root is drafted. Window nodes are probes: scored, never accepted.

Jacobi decoding (Santilli et al. 2023) is N = 2: one level, no n-grams to collect, and the level itself is what is drafted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar

from specviz.drafters.grow import Experience
from specviz.drafters.trie import Answer, Tally, Trie, sprout
from specviz.tree import Draft, chain, empty, tree

# Share of a guess's tokens accepted where those before them were, by how recently the guess entered the pool (latest first)
# and by depth. Counted with SmolLM2-135M at temperature 0 on a few prompts.
PRIOR = ((0.33, 0.65, 0.65), (0.14, 0.55, 0.6), (0.08, 0.4, 0.5), (0.05, 0.3, 0.5))


@dataclass
class Lookahead:
    window: int = field(default=2, metadata={"min": 2, "max": 16, "help": "W: columns of the window; each costs a row a level."})
    ngram: int = field(
        default=3, metadata={"min": 2, "max": 8, "help": "N: length of the n-grams; 2 is Jacobi decoding, which needs no pool."}
    )
    guesses: int = field(
        default=4, metadata={"min": 1, "max": 32, "help": "G: n-grams kept for each first token, the longest unused dropped."}
    )
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree of guesses; 0 = as many as pay for themselves."})
    seeded: bool = field(default=True, metadata={"help": "Fill the pool with the n-grams of the prompt first."})
    row_cost: float = 0.045

    name: ClassVar[str] = "lookahead"
    paper: ClassVar[str] = "Fu et al. 2024, Lookahead Decoding"
    lossless: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @property
    def shape(self) -> str:
        return "chain" if self.ngram == 2 else "tree"

    @classmethod
    def tiny(cls, target) -> Lookahead:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self.tally = Tally([chance for age in PRIOR for chance in age])
        self._past, self._trie, self._probes = Experience(), Trie(), 0
        self._pool: dict[int, list[tuple[int, ...]]] = {}  # first token -> what followed it, the latest first
        self._filler, self._prompt = random.Random(state.sampling.seed), list(state.ids)
        # the lowest level starts wider, since every level grown on it ends one column earlier
        self._levels = [self._fill(self.window - 1 + self.ngram - 2)]
        if self.seeded and self.ngram > 2:
            for at in range(len(state.ids) - self.ngram + 1):
                self._hold(state.ids[at], tuple(state.ids[at + 1 : at + self.ngram]))

    def propose(self, state) -> Draft:
        self._root, self._trie, self._probes = state.ids[-1], Trie(), 0
        if state.room < 1:
            return empty("clipped")
        if self.ngram == 2:
            tokens = self._levels[0][: state.room]
            return chain(tokens, reason="clipped" if len(tokens) < self.window - 1 else "", note={"window": [tokens]})
        trie = self._trie = sprout(self, state, self.size, self.row_cost, self._past, spent=self.row_cost * self._rows)
        tokens, parents = list(trie.tokens), list(trie.parents)
        candidates = len(tokens)
        # near the end no window is read: what it would find could not be used any more, and it must not pass the context
        if len(self._levels[0]) + len(self._levels) - 1 <= state.room:
            self._place(tokens, parents)
        self._probes = len(tokens) - candidates
        held = self._pool.get(self._root, [])
        note = {
            "score": [round(score, 4) for score in trie.scores] + [0.0] * self._probes,
            "window": self._levels,
            "guesses": [list(guess) for guess in held],
            "pool": len(held),
            "pool_size": sum(map(len, self._pool.values())),
            "named": sorted({token for row in (*held, *self._levels) for token in row} - set(tokens)),
        }
        probe = (False,) * candidates + (True,) * self._probes
        return tree(tokens, parents, probe=probe, note=note, reason="" if trie.tokens else "no match")

    def accept(self, state, verdict, scores) -> None:
        emitted = state.ids[len(state.ids) - state.new :]
        if self.ngram == 2:
            said = scores.logits.argmax(-1).tolist()
            shifted = said[len(emitted) : self.window]
            self._levels = [shifted + self._fill(self.window - 1 - len(shifted))]
            return
        self._trie.learn(self, emitted)
        self._past.round(state.new, 1 + self.row_cost * (len(scores.tokens) - 1))
        for guess in self._pool.get(self._root, []):
            if list(guess[: len(emitted)]) == emitted[: len(guess)]:
                self._hold(self._root, guess)  # used, so it stays longest
                break
        if self._probes:
            self._advance(scores)

    def after(self, path: tuple[int, ...]) -> Answer:
        tokens, kinds = [], []
        for age, guess in enumerate(self._pool.get(self._root, [])):
            if len(guess) > len(path) and guess[: len(path)] == path and guess[len(path)] not in tokens:
                tokens.append(guess[len(path)])
                kinds.append(min(age, len(PRIOR) - 1) * len(PRIOR[0]) + min(len(path), len(PRIOR[0]) - 1))
        return self.tally.answer(tokens, kinds)

    def learn(self, answer: Answer, emitted: int) -> None:
        self.tally.learn(answer, emitted)

    @property
    def _rows(self) -> int:
        return sum(map(len, self._levels))

    def _place(self, tokens: list[int], parents: list[int]) -> None:
        """Appends the window's nodes level by level. Column 0 of level 0 is the root itself, which is no node."""
        below: list[int] = [-1]
        for level, row in enumerate(self._levels):
            placed: list[int] = []
            for column, token in enumerate(row):
                placed.append(len(tokens))
                parents.append((placed[-2] if column else -1) if level == 0 else below[column])
                tokens.append(token)
            below = [-1, *placed] if level == 0 else placed

    def _advance(self, scores) -> None:
        """Takes the answers to the top level: another level while there are too few, after that n-grams for the pool."""
        top = self._levels[-1]
        last = len(scores.tokens) - len(top)
        rows = list(range(last, len(scores.tokens)))
        said = scores.logits[[0, *rows] if len(self._levels) == 1 else rows].argmax(-1).tolist()
        if len(self._levels) < self.ngram - 1:
            self._levels = [row[1:] for row in (*self._levels, said)]  # column 0 has become text
            return
        for column, key in enumerate([self._root, *self._levels[0]]):
            self._hold(key, (*(row[column] for row in self._levels[1:]), said[column]))
        self._levels = [self._levels[1][1:], *self._levels[2:], said]

    def _hold(self, key: int, followed: tuple[int, ...]) -> None:
        held = [one for one in self._pool.get(key, ()) if one != followed]
        self._pool[key] = [followed, *held][: self.guesses]

    def _fill(self, count: int) -> list[int]:
        """Tokens of the prompt at random: more likely to begin something than any others."""
        return self._filler.choices(self._prompt, k=count) if count > 0 else []
