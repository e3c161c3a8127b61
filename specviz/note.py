"""What a method noted of its draft (`Draft.note`): the entries that a view reads, and what they must be in a file from anybody.

A method may note any other plain value beside them; there is a limit to all of it together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_NOTE = 20_000  # values in a note

OF_NODES = {"score": float, "own": float, "rank": int}  # a list with an entry for each node
LISTS = {"chance": float, "taps": int}
TOKENS = ("window", "guesses")  # lists of lists of token ids


def check_note(note: dict[str, Any], nodes: int, require: Callable[[bool, str], None]) -> None:
    """require(condition, sentence) is called with all that must hold. nodes: how many tokens were drafted."""
    require(_size(note) <= MAX_NOTE, f"a note of more than {MAX_NOTE} values.")
    for name, kind in {**OF_NODES, **LISTS}.items():
        value = note.get(name, [])
        require(isinstance(value, list), f"the note's {name} is no list.")
        require(name not in OF_NODES or name not in note or len(value) == nodes, f"the note's {name} does not fit the nodes.")
        if kind is float:
            require(all(_number(x) and 0 <= x <= 1.000001 for x in value), f"the note's {name} holds something that is no probability.")
        elif kind is int:
            require(all(_number(x) and isinstance(x, int) and -1 <= x < 2**31 for x in value), f"the note's {name} holds no whole numbers.")
    for name in TOKENS:
        value = note.get(name, [])
        lists = isinstance(value, list) and all(isinstance(one, list) for one in value)
        ids = lists and all(_number(x) and isinstance(x, int) and 0 <= x < 2**31 for one in value for x in one)
        require(ids, f"the note's {name} holds something that is no list of token ids.")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _size(value: Any) -> int:
    """Values in free JSON, which is shallow once it was read."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(_size(one) for one in inside)
