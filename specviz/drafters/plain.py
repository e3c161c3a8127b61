"""Plain decoding: the empty draft in the same loop, so that a comparison with it is fair by construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specviz.tree import Draft, empty


@dataclass
class Plain:
    name: ClassVar[str] = "plain"
    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    shape: ClassVar[str] = "none"
    needs: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def tiny(cls, target) -> Plain:
        return cls()

    def taps(self, config) -> tuple[int, ...]:
        return ()

    def begin(self, state) -> None:
        pass

    def propose(self, state) -> Draft:
        return empty()

    def accept(self, state, verdict, scores) -> None:
        pass
