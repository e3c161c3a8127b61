"""Prompt lookup (Saxena 2023; n-gram speculation): copy what followed the last few tokens when they last occurred before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from specviz.tree import Draft, chain, empty


@dataclass
class PromptLookup:
    gamma: int = field(default=10, metadata={"min": 1, "max": 32, "help": "Tokens copied at most."})
    ngram: int = field(
        default=3, metadata={"min": 1, "max": 8, "help": "Longest run of last tokens that is looked up; shorter ones are tried next."}
    )

    name: ClassVar[str] = "prompt_lookup"
    paper: ClassVar[str] = "Saxena 2023, Prompt Lookup Decoding"
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "chain"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> PromptLookup:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self._end: dict[tuple[int, ...], int] = {}  # n-gram -> where its latest occurrence that is followed by something ends
        self._indexed = 0

    def propose(self, state) -> Draft:
        ids = state.ids
        self._extend(ids)
        wanted = min(self.gamma, state.room)
        for size in range(min(self.ngram, len(ids) - 1), 0, -1):
            if (start := self._end.get(tuple(ids[-size:]))) is None:
                continue
            if wanted < 1:
                return empty("clipped")
            copied: list[int] = []
            while len(copied) < wanted and (not copied or copied[-1] not in state.stop_ids):
                at = start + len(copied)  # a copy that reaches the end goes on in itself, so a loop is copied as a loop
                copied.append(ids[at] if at < len(ids) else copied[at - len(ids)])
            reason = "end of text" if len(copied) < wanted else "clipped" if wanted < self.gamma else ""
            return chain(copied, reason=reason, note={"ngram": size, "from": start})
        return empty("no match")

    def accept(self, state, verdict, scores) -> None:
        pass

    def _extend(self, ids: list[int]) -> None:
        for end in range(max(self._indexed, 1), len(ids)):
            for size in range(1, min(self.ngram, end) + 1):
                self._end[tuple(ids[end - size : end])] = end
        self._indexed = len(ids)
