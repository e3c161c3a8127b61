"""Independent draft model (Leviathan et al. 2023, Chen et al. 2023): a smaller model writes gamma tokens, one after the other.

How many is adaptive, if wanted: by a rule of thumb, by the draft's own confidence, or by the trained head of SpecDec++ (Huang et
al. 2024), which reads the draft's hidden state after each token and gives the chance that the target accepts it. Whatever ends
a draft is known before its last token is drawn, or keeps that token: so every variant is lossless.

The draft keeps its own cache. After a fully accepted round it lacks the row of the last drafted token, which it never
read: the next round feeds two tokens (or, after an interruption, as many as are missing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch

from specviz.heads.draft import untrained
from specviz.heads.specdec import Acceptance
from specviz.session import Target
from specviz.tree import Draft, chain, empty


def readable(ids: list[int], draft: Target) -> list[int]:
    """A target may hold more ids than its draft, to fill up its vocabulary; any guess at them is allowed to a draft."""
    return [token if token < draft.vocab else 0 for token in ids]


@dataclass
class DraftModel:
    model: Target
    d2t: torch.Tensor | None = None  # int64[Vd]: target id of each draft id, where the draft has a trimmed head
    gamma: int = field(default=4, metadata={"min": 1, "max": 32, "help": "Tokens drafted a round."})
    adaptive: str = field(
        default="constant",
        metadata={
            "choices": ["constant", "heuristic", "specdec"],
            "heads": {"specdec": "specdec"},
            "help": "heuristic: two more tokens after a fully accepted round, else one fewer; specdec: a trained head says when to stop.",
        },
    )
    confidence: float = field(
        default=0.3,
        metadata={
            "min": 0.0,
            "max": 1.0,
            "step": 0.05,
            "help": "Stop drafting after a token that the draft gave less than this (before sampling settings); 0 = off.",
        },
    )

    threshold: float = field(
        default=0.6,
        metadata={
            "min": 0.05,
            "max": 1.0,
            "step": 0.05,
            "help": "specdec: stop when some token drafted so far is rejected with more than this probability.",
        },
    )
    acceptance: Acceptance | None = None  # the trained head of "specdec"

    name: ClassVar[str] = "draft_model"
    paper: ClassVar[str] = "Leviathan et al. 2023; Chen et al. 2023"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "chain"
    needs: ClassVar[str] = "model"

    @property
    def source(self) -> str:
        return self.model.name

    @classmethod
    def tiny(cls, target) -> DraftModel:
        model = untrained(target)
        return cls(model=model, acceptance=Acceptance.tiny(model.config.hidden_size))

    @classmethod
    def load(cls, folder: Path, model: Target) -> dict[str, Acceptance]:
        """Weights that a setting needs. model: the draft, whose hidden states they read."""
        return {"acceptance": Acceptance.from_files(folder, model, model.config.hidden_size)}

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self._length = self.gamma
        self._taps = (self.model.config.num_hidden_layers,) if self.adaptive == "specdec" else ()
        self._session = self.model.session(len(state.ids) + state.room + self.gamma + 1, self._taps)
        if len(state.ids) <= self.model.context:  # a longer prompt it cannot read, and propose() never asks it to
            self._session.prefill(readable(state.ids, self.model))

    def propose(self, state) -> Draft:
        room = min(state.room, self.model.context - len(state.ids))
        wanted = min(self._length, room)
        if wanted < 1:
            return empty("clipped")
        tokens: list[int] = []
        laws: list[torch.Tensor] = []
        feed, reason = readable(state.ids[self._session.length :], self.model), "clipped" if wanted < self._length else ""
        chances: list[float] = []  # that a drafted token is accepted, of those that the draft has read
        while True:
            scores = self._session.forward(feed, tuple(range(-1, len(feed) - 1)), rows_wanted=1)
            logits = scores.logits[0]
            if self._taps and tokens:  # the first state belongs to a token that the target has drawn
                chances.append(float(self.acceptance(scores.hidden[self._taps[0]][-1:])[0]))
            law, token = self._draw(state, logits, tokens)
            tokens.append(token)
            laws.append(law)
            feed = [token]
            # whatever ends the chain, its newest token stays in it: dropping it would change the output law
            if len(tokens) == wanted:
                break
            if token in state.stop_ids:
                reason = "end of text"
                break
            if self.confidence and not self._taps and float(self._widen(logits, state.vocab).softmax(-1)[token]) < self.confidence:
                reason = "unsure"
                break
            if 1 - math.prod(chances) > self.threshold:
                reason = "a rejection is likely"
                break
        note = {"gamma": self._length} | ({"chance": [round(c, 4) for c in chances]} if self._taps else {})
        return chain(tokens, laws, passes=len(tokens), reason=reason, note=note)

    def accept(self, state, verdict, scores) -> None:
        committed = len(state.ids) - 1  # the last id was drawn by the target, no row of it exists anywhere
        self._session.rewind(min(self._session.length, committed))
        if self.adaptive == "heuristic":
            grown = self._length + 2 if verdict.kind == "bonus" else self._length - 1
            self._length = max(1, min(grown, 32))

    def _draw(self, state, logits: torch.Tensor, path: list[int]) -> tuple[torch.Tensor, int]:
        """(float32[V] in the target's ids, a token of it). Only a penalty needs to know which ids a trimmed head's rows are."""
        if self.d2t is None or state.sampling.reads_history:
            law = state.law(self._widen(logits, state.vocab), path)
            return law, state.coins.draw(law)[1]
        law = state.law(logits, path)
        wide = law.new_zeros(state.vocab)
        wide[self.d2t.to(law.device)] = law
        return wide, int(self.d2t[state.coins.draw(law)[1]])

    def _widen(self, logits: torch.Tensor, vocab: int) -> torch.Tensor:
        """float[V] in the target's ids. What the draft cannot say has no mass; rows beyond the target's are cut."""
        if self.d2t is None and len(logits) >= vocab:
            return logits[:vocab]
        wide = logits.new_full((vocab,), float("-inf"))
        wide[self.d2t.to(logits.device) if self.d2t is not None else slice(len(logits))] = logits
        return wide
