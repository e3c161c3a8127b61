"""EAGLE-3 (Li et al. 2025): features of three layers of the target fused, tokens predicted directly, the tree of EAGLE-2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specviz.drafters.feature import ConfidentTree
from specviz.heads.eagle3 import Eagle3 as Head


@dataclass
class Eagle3(ConfidentTree):
    name: ClassVar[str] = "eagle3"
    paper: ClassVar[str] = "Li et al. 2025, EAGLE-3"
    weights = Head
