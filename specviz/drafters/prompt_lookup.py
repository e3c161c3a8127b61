"""Prompt lookup (Saxena 2023; n-gram speculation): copy what followed the last few tokens when they occurred before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from specviz.tree import Draft, chain, empty


@dataclass
class PromptLookup:
    gamma: int = field(default=10, metadata={"min": 1, "max": 32, "help": "Tokens copied at most."})
    ngram: int = field(
        default=2, metadata={"min": 1, "max": 8, "help": "Longest run of last tokens that is looked up; shorter ones are tried next."}
    )

    name: ClassVar[str] = "prompt_lookup"
    paper: ClassVar[str] = "Saxena 2023, Prompt Lookup Decoding"
    lossless: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        self._index: dict[tuple[int, ...], list[int]] = {}
        self._indexed = 0

    def propose(self, state) -> Draft:
        ids = state.ids
        self._extend(ids)
        for size in range(min(self.ngram, len(ids) - 1), 0, -1):
            if found := self._index.get(tuple(ids[-size:])):
                wanted = min(self.gamma, state.room)
                copied = ids[found[0] : found[0] + wanted]
                stop = next((i + 1 for i, token in enumerate(copied) if token in state.stop_ids), len(copied))
                copied = copied[:stop]
                if not copied:
                    return empty("clipped")
                reason = "clipped" if wanted < self.gamma and len(copied) == wanted else "" if len(copied) == self.gamma else "short match"
                return chain(copied, reason=reason, note={"ngram": size, "from": found[0]})
        return empty("no match")

    def accept(self, state, verdict, scores) -> None:
        pass

    def _extend(self, ids: list[int]) -> None:
        """Where each n-gram was first followed by something; an n-gram that ends at the last token is not followed yet."""
        for end in range(max(self._indexed, 1), len(ids)):
            for size in range(1, min(self.ngram, end) + 1):
                self._index.setdefault(tuple(ids[end - size : end]), [end])
        self._indexed = len(ids)
