"""What the recurrent heads share (EAGLE-1, EAGLE-2, EAGLE-3, MTP): how they read the target's features, and dynamic trees.

A slot pairs the feature of position i with the token of position i + 1. Between rounds the head's cache holds slots of real
features alone, one for each committed token but the first. A round begins by reading the slots that are new (the accepted
tokens and the target's own last one); what drafting adds after that stands on the head's own output and is dropped again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from specviz.drafters.grow import Experience, Grown, Laws, dynamic
from specviz.heads.recurrent import Recurrent
from specviz.session import PREFILL_ROWS
from specviz.tree import Draft, empty

# A draft is not taken to be surer than at this temperature, however cold the run is: how sure it is at 1 is also how often the
# target's likeliest token is the one, measured at 0.
COOL = 1.0


def sure(logits: torch.Tensor, width: int, temperature: float, d2t: torch.Tensor | None) -> Laws:
    """Confidences at a temperature, and the target's ids, of the `width` likeliest tokens, best first. logits: float[n, Vd].

    Raises FloatingPointError where these are no numbers, as of a head that was never trained and reads its own output.
    """
    warm = logits / temperature
    top = warm.topk(min(width, warm.shape[-1]))
    own = (top.values - warm.logsumexp(-1, keepdim=True)).exp()
    if not bool(own.isfinite().all()):
        raise FloatingPointError("its logits hold NaN or are infinite")
    return own.tolist(), (top.indices if d2t is None else d2t[top.indices]).tolist()


class Recursion:
    """A head at work on one sequence. Rows are the slots that this round's drafting added, in the order in which they were read."""

    def __init__(self, head: Recurrent, taps: Sequence[int], capacity: int):
        self.head, self.taps = head, tuple(taps)
        self.cache = head.begin(capacity)
        self.stable = 0  # slots of real features; the rest of the cache is this round's
        self._depths: list[int] = []

    def read(self, state, upto: int) -> torch.Tensor:
        """Reads the real slots before `upto` (at least 1) that are new; the last of them in any case, for what it returns.

        float[Vd]: logits of the token after ids[upto].
        """
        start = min(self.stable, upto - 1)
        self.cache.rewind(start)
        for begin in range(start, upto, PREFILL_ROWS):
            end = min(begin + PREFILL_ROWS, upto)
            features = self.head.features({tap: state.hidden[tap][begin:end] for tap in self.taps})
            tokens = torch.tensor(state.ids[begin + 1 : end + 1], device=features.device)
            positions = torch.arange(begin, end, device=features.device)
            out, logits = self.head.step(tokens, features, positions, None, self.cache, wanted=1)
        self.stable = upto
        self._outs, self._depths = out[-1:], [0]
        self._above = torch.zeros(1, 0, dtype=torch.bool, device=out.device)  # row r + 1 sees row s; the first line is the root's
        return self._precise(logits, state)[0]

    def draft(self, state, tokens: Sequence[int], after: Sequence[int]) -> torch.Tensor:
        """float[n, Vd]: one pass over n nodes. after: the row of each one's parent, -1 for a child of the root. Adds n rows."""
        count, rows, device = len(tokens), len(self._depths) - 1, self._outs.device
        seen = past_seen = None
        if count == 1 and after[0] == rows - 1 and self._depths[-1] == rows:  # a chain sees all there is
            parents, above = slice(rows, rows + 1), None
        else:
            parents = torch.tensor(after, device=device) + 1
            above, seen = self._above[parents], torch.eye(count, dtype=torch.bool, device=device)
            past_seen = torch.cat([above.new_ones(count, self.stable), above], 1) if rows else None
        depths = [self._depths[row + 1] + 1 for row in after]
        positions = torch.tensor(depths, device=device) + (self.stable - 1)
        out, logits = self.head.step(
            torch.tensor(tokens, device=device), self._outs[parents], positions, seen, self.cache, past_seen=past_seen
        )
        lines = torch.zeros(1 + rows + count, rows + count, dtype=torch.bool, device=device)
        lines[: 1 + rows, :rows] = self._above
        lines[1 + rows :, :rows] = self._above[parents] if above is None else above
        lines[1 + rows :, rows:].fill_diagonal_(True)
        self._above, self._outs = lines, torch.cat([self._outs, out])
        self._depths += depths
        return self._precise(logits, state)

    def drop(self) -> None:
        """Forgets what this round's drafting added."""
        self.cache.rewind(self.stable)

    def _precise(self, logits: torch.Tensor, state) -> torch.Tensor:
        """A target that computes in float64 has its laws compared to float64's precision."""
        return logits.double() if state.hidden[self.taps[0]].dtype == torch.float64 else logits


@dataclass
class HeadDrafter:
    """A drafter around one recurrent head. What it spends and brings is counted in target passes of one row."""

    head: Recurrent
    row_cost: float = 0.045  # of one more row
    draft_cost: float = 0.09  # of a draft pass of one row

    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "tree"
    needs: ClassVar[str] = "head"
    weights: ClassVar[type[Recurrent]]

    @classmethod
    def load(cls, folder: Path, target: Any) -> dict[str, Any]:
        return {"head": cls.weights.from_files(folder, target)}

    @classmethod
    def tiny(cls, target: Any) -> Self:
        return cls(head=cls.weights.tiny(target))

    @property
    def source(self) -> str:
        return self.head.kind

    def taps(self, config) -> tuple[int, ...]:
        self._taps = self.head.taps(config)
        return self._taps

    def begin(self, state) -> None:
        self._past = Experience()
        self._grown: Grown | None = None
        self._recursion = Recursion(self.head, self._taps, len(state.ids) + state.room + 64)
        if len(state.ids) > 2:
            self._recursion.read(state, len(state.ids) - 2)  # the slot of the root is the first round's

    def accept(self, state, verdict, scores) -> None:
        if self._grown is None:  # nothing was drafted, or another drafter spoke
            return
        emitted = state.ids[len(state.ids) - state.new :]
        self._grown.learn(self._past, emitted)
        self._past.round(len(emitted), 1 + self.row_cost * (len(scores.logits) - 1) + self._grown.spent)
        self._grown = None

    def _blocked(self, state) -> str:
        """Why nothing can be drafted, or ""."""
        self._grown = None
        return "clipped" if state.room < 1 else "no features" if len(state.ids) < 2 else ""

    def _read(self, state) -> torch.Tensor:
        """float[Vd]: logits of the root's children."""
        return self._recursion.read(state, len(state.ids) - 1)

    def _sure(self, state, logits: torch.Tensor, width: int) -> Laws:
        return sure(logits, width, max(state.sampling.temperature, COOL), self.head.d2t)

    def _law(self, state, logits: torch.Tensor, path: list[int]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(law float[n], the target's ids of its entries or None for all of them in order) after the committed ids and `path`.

        Only a penalty needs to know which tokens a trimmed head's rows are; else the law is made over those rows alone.
        """
        if self.head.d2t is None or not state.sampling.reads_history:
            return state.law(logits, path), self.head.d2t
        wide = logits.new_full((state.vocab,), float("-inf"))
        wide[self.head.d2t] = logits
        return state.law(wide, path), None

    def _wide(self, state, laws: Sequence[torch.Tensor], ids: torch.Tensor | None) -> torch.Tensor:
        """float[N, V] in the target's ids of laws over its own."""
        rows = torch.stack(list(laws))
        return rows if ids is None else rows.new_zeros(len(rows), state.vocab).index_copy_(1, ids, rows)

    def _sent(self, grown: Grown, kept: Sequence[int], size: int, reason: str, q: torch.Tensor | None = None) -> Draft:
        """The draft of those candidates. size: nodes asked for, 0 for as many as pay."""
        self._grown = grown
        return grown.sent(kept, size, q, reason, taps=list(self._taps))


@dataclass
class ConfidentTree(HeadDrafter):
    """A dynamic tree: it grows where the head is sure. Nothing is drawn, so there is no q and any choice of nodes is lossless."""

    size: int = field(default=0, metadata={"min": 0, "max": 64, "help": "Nodes of the tree; 0 = as many as pay."})
    depth: int = field(default=8, metadata={"min": 1, "max": 16, "help": "Levels of the tree at most, each a draft pass."})
    width: int = field(default=8, metadata={"min": 1, "max": 32, "help": "Nodes expanded a level, and children of each."})

    def propose(self, state) -> Draft:
        if reason := self._blocked(state):
            return empty(reason)
        logits = self._read(state)
        row = {-1: -1}  # of each candidate that was expanded

        def expand(nodes: list[int], grown: Grown) -> Laws:
            after = [row[grown.parents[i]] for i in nodes]
            start = len(row) - 1
            row.update({node: start + i for i, node in enumerate(nodes)})
            return self._sure(state, self._recursion.draft(state, [grown.tokens[i] for i in nodes], after), self.width)

        grown, kept = dynamic(
            self._sure(state, logits[None], self.width),
            expand,
            width=self.width,
            depth=min(self.depth, state.room),
            size=self.size,
            row_cost=self.row_cost,
            draft_cost=self.draft_cost,
            past=self._past,
            ends=state.stop_ids,
        )
        self._recursion.drop()
        reason = "clipped" if state.room < self.depth else "" if kept else "unsure"
        return self._sent(grown, kept, self.size, reason)
