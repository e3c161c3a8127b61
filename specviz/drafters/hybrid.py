"""Several drafters in one tree: what repeats is looked up, what the target once said is recycled, a trained head adds the rest.

Each part is asked what may follow a path, whichever part drafted that path, and each is believed as often as its kind of evidence
was right so far. So a repeat goes on where a head would stop, and a head takes over where the repeat ends. Nodes are chosen by
these chances alone, hence the tree has no q, and it is lossless even where a part drew its tokens: for any given tree of point masses
the rule emits the target's law, and how the tree came about depends on nothing that is tossed afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from specviz.drafters.eagle2 import Eagle2
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.grow import Experience
from specviz.drafters.medusa import Medusa
from specviz.drafters.mtp import Mtp
from specviz.drafters.plain import Plain
from specviz.drafters.suffix import Suffix
from specviz.drafters.token_recycling import TokenRecycling
from specviz.drafters.trie import Answer, Tally, Trie, Union, sprout
from specviz.session import ModelError
from specviz.tree import Draft, empty

HEADS = (Eagle3, Eagle2, Mtp, Medusa)  # in the order in which a folder of weights is tried
# How likely what each part says still is, as a share of its record, where others speak and say something else.
ALONE = {"suffix": 0.8, "recycled": 0.4, "other": 0.8}
SURE, DEPTHS = 10, 4  # bins of a head's confidence; depths that are told apart


@dataclass
class Lookups:
    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay for themselves."})
    match: int = field(default=16, metadata={"min": 1, "max": 32, "help": "Longest run of last tokens that is looked up."})
    context: int = field(default=3, metadata={"min": 1, "max": 3, "help": "Tokens of the longest key of recycled successors."})
    row_cost: float = 0.045

    name: ClassVar[str] = "lookups"
    paper: ClassVar[str] = "Oliaro et al. 2024, SuffixDecoding; Luo et al. 2024, Token Recycling"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> Self:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self._suffix = Suffix(match=self.match, row_cost=self.row_cost)
        self._recycled = TokenRecycling(context=self.context, row_cost=self.row_cost)
        self._suffix.begin(state)
        self._recycled.begin(state)
        self._union, self._names = Union(), ["suffix", "recycled"]
        self._union.add(self._suffix, ALONE["suffix"])
        self._union.add(self._recycled, ALONE["recycled"])
        self._past, self._trie, self._spent = Experience(), Trie(), 0.0

    def propose(self, state) -> Draft:
        self._trie, self._spent = Trie(), 0.0
        if state.room < 1:
            return empty("clipped")
        passes = self._ask(state)
        self._trie = sprout(self._union, state, self.size, self.row_cost, self._past, self._spent)
        note = {"part": [self._speaker(path) for path in self._trie.paths], "match": self._suffix.matched}
        return self._trie.draft(self.size, passes=passes, note=note)

    def accept(self, state, verdict, scores) -> None:
        self._trie.learn(self._union, state.ids[len(state.ids) - state.new :])
        self._past.round(state.new, 1 + self._spent + self.row_cost * (len(scores.tokens) - 1))
        self._suffix.read(state)
        self._recycled.remember(state, verdict, scores)

    def _ask(self, state) -> int:
        """Has further parts draft; returns the passes that took."""
        return 0

    def _speaker(self, path: tuple[int, ...]) -> str:
        """The part that gave the node at the end of `path` its chance."""
        answer = self._trie.asked[path[:-1]]
        return self._names[answer.evidence.who[answer.tokens.index(path[-1])]]


@dataclass
class Hybrid(Lookups):
    other: Callable[[], Any] = Plain  # makes the drafter that is asked besides; it takes what was scored from `scores`, not from its draft
    enough: float = field(
        default=1.5,
        metadata={"min": 0.0, "max": 16.0, "step": 0.25, "help": "Do not ask the head where lookups alone promise this many tokens."},
    )
    draft_cost: float = 0.09  # of a draft pass of one row, in target passes

    name: ClassVar[str] = "hybrid"
    needs: ClassVar[str] = "head"

    @classmethod
    def load(cls, folder: Path, target: Any) -> dict[str, Any]:
        """Weights of whichever head they are."""
        for method in HEADS:
            try:
                return {"other": functools.partial(method, **method.load(folder, target))}
            except ModelError as error:
                refused = error
        raise refused

    @classmethod
    def tiny(cls, target) -> Self:
        return cls(other=functools.partial(Eagle3.tiny, target))

    @property
    def source(self) -> str:
        return self._made.source

    @functools.cached_property
    def _made(self):
        return self.other()

    def taps(self, config) -> tuple[int, ...]:
        return self._made.taps(config)

    def begin(self, state) -> None:
        super().begin(state)
        for cost in ("row_cost", "draft_cost"):  # it drafts on the same machine
            if hasattr(self._made, cost):
                setattr(self._made, cost, getattr(self, cost))
        self._made.begin(state)
        self._offered = Offered()
        self._union.add(self._offered, ALONE["other"])
        self._names.append(self._made.name)

    def accept(self, state, verdict, scores) -> None:
        super().accept(state, verdict, scores)
        self._made.accept(state, verdict, scores)

    def _ask(self, state) -> int:
        self._offered.take(None)
        if self.enough:
            looked_up = sprout(self._union, state, self.size, self.row_cost, self._past)
            if sum(looked_up.scores) >= self.enough:
                return 0
        draft = self._made.propose(state)
        self._offered.take(draft)
        self._spent = self.draft_cost * draft.passes
        return draft.passes


class Offered:
    """Another drafter's nodes as a part: believed by depth and by its own confidence, where it gives one."""

    def __init__(self):
        self.tally = Tally([(sure + 0.5) / SURE for _ in range(DEPTHS) for sure in range(SURE)])
        self.take(None)

    def take(self, draft: Draft | None) -> None:
        self._children: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
        paths: list[tuple[int, ...]] = []
        own = draft.note.get("own", [0.5] * len(draft)) if draft else []
        for i, token in enumerate(draft.tokens.tolist() if draft else []):
            before = paths[draft.parents[i]] if draft.parents[i] >= 0 else ()
            paths.append((*before, token))
            tokens, kinds = self._children.setdefault(before, ([], []))
            if token not in tokens and not draft.is_probe(i):
                tokens.append(token)
                kinds.append(min(len(before), DEPTHS - 1) * SURE + min(int(own[i] * SURE), SURE - 1))

    def after(self, path: tuple[int, ...]) -> Answer:
        return self.tally.answer(*self._children.get(path, ((), ())))

    def learn(self, answer: Answer, emitted: int) -> None:
        self.tally.learn(answer, emitted)
