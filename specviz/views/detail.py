"""One iteration in full, as JSON for the inspect view: candidates with their coins, and the laws they were judged by.

Fetched on demand, so that the string that is streamed stays light. What was not recorded is None, never a made-up
number: the page then says "no data".

What a method noted of its draft (`Draft.note`) goes along, whatever the method: plain values as they are, lists of token
ids as tokens. A file that somebody opened may note anything, so there is a limit to all of it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import Any

from specviz.note import TOKENS
from specviz.trace import Header, Iteration, Row, Test
from specviz.views.stream import is_chain, letters, token_name

OF_THE_RECORD = frozenset({"named", "fell_back"})  # not for the reader of the draft: what must have a name, what the rule did
MOST_ENTRIES = 32  # of a note
MOST_ITEMS = 256  # of a list in it
MOST_CHARACTERS = 200
MOST_DEPTH = 3


def detail(header: Header, iteration: Iteration) -> dict[str, Any]:
    """Everything the page shows of `iteration`. Rows are referred to by their place in "rows", None where none was kept."""
    texts = ChainMap(iteration.texts, header.texts)  # not merged: an opened header may hold millions

    def token(index: int) -> dict[str, Any]:
        return {"id": index, "name": token_name(index, texts, header.stop_ids)}

    tests = {test.node: test for test in iteration.tests}
    places = {row.after: k for k, row in enumerate(iteration.rows)}
    marks = letters(iteration)
    nodes = [
        {
            **token(node.token),
            "parent": node.parent,
            "depth": node.depth,
            "p": node.p,
            "q": node.q,
            "rank": node.rank,
            "letter": marks[i],
            "row": places.get(node.parent),
            "test": _test(tests.get(i)),
        }
        for i, node in enumerate(iteration.nodes)
    ]
    end = iteration.path[-1] if iteration.path else -1
    rows = [_row(row, token) for row in iteration.rows]
    return {
        "index": iteration.index,
        "root": token(iteration.root),
        "nodes": nodes,
        "last": {
            **token(iteration.token),
            "letter": marks[-1],
            "draw": iteration.draw,
            "row": places.get(end),
            "fell_back": bool(iteration.note.get("fell_back", False)),
        },
        "rows": rows,
        "path": iteration.path,
        "rule": header.rule,
        "temperature": header.sampling.get("temperature"),
        "settings": {name: value for name, value in header.sampling.items() if name != "seed"},
        "capture": header.capture,
        "lossless": header.lossless,
        "is_chain": is_chain(iteration),
        "seconds": iteration.seconds,
        "passes": iteration.passes,
        "reason": iteration.reason,
        "note": noted(iteration.note, token),
        "method": header.method,
        "knobs": bounded(header.knobs),
        "stop": iteration.stop,
        "message": iteration.message,
    }


def noted(note: dict[str, Any], token: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """A note for the page. Token ids become what `token` makes of them; what is no id among them becomes None."""

    def named(value: Any, depth: int) -> Any:
        if isinstance(value, list) and depth < MOST_DEPTH:
            return [named(one, depth + 1) for one in value[:MOST_ITEMS]]
        return token(value) if type(value) is int and 0 <= value < 2**31 else None

    shown = [(name, value) for name, value in note.items() if name not in OF_THE_RECORD][:MOST_ENTRIES]
    return {name: named(value, 0) if name in TOKENS else bounded(value) for name, value in shown}


def bounded(value: Any, depth: int = 0) -> Any:
    """Free JSON with an end to it: long texts and lists are cut, what is nested too deeply becomes None."""
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if isinstance(value, (list, tuple, dict)) and depth >= MOST_DEPTH:
        return None
    if isinstance(value, dict):
        return {str(name)[:MOST_CHARACTERS]: bounded(one, depth + 1) for name, one in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, (list, tuple)):
        return [bounded(one, depth + 1) for one in value[:MOST_ITEMS]]
    return value


def _test(test: Test | None) -> dict[str, Any] | None:
    if test is None:
        return None
    return {"p": test.p, "q": test.q, "u": test.u, "threshold": test.threshold, "accepted": test.accepted}


def _row(row: Row, token: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """Columns on the union of likely tokens; `rest` is the mass that the listed tokens leave over, a column each."""
    columns = {"p": row.p, "model": row.model, "q": row.q, "residual": row.residual}
    return {
        "after": row.after,
        "tokens": [token(index) for index in row.ids],
        **columns,
        "rest": {name: None if values is None else max(0.0, 1.0 - sum(values)) for name, values in columns.items()},
        "overlap": row.overlap,
    }
