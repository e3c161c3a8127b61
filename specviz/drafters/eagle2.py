"""EAGLE-2 (Li et al. 2024): EAGLE-1's weights, and a tree that grows where the head is confident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specviz.drafters.feature import ConfidentTree
from specviz.heads.eagle import Eagle


@dataclass
class Eagle2(ConfidentTree):
    name: ClassVar[str] = "eagle2"
    paper: ClassVar[str] = "Li et al. 2024, EAGLE-2"
    weights = Eagle
