"""One iteration in full, as JSON for the inspect view: candidates with their coins, and the laws they were judged by.

Fetched on demand, so that the string that is streamed stays light. What was not recorded is None, never a made-up
number: the page then says "no data".
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import Any

from specviz.trace import Header, Iteration, Row, Test
from specviz.views.stream import letters, token_name


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
        "is_chain": all(node.parent == i - 1 for i, node in enumerate(iteration.nodes)),
        "seconds": iteration.seconds,
        "passes": iteration.passes,
        "reason": iteration.reason,
        "note": {name: value for name, value in iteration.note.items() if isinstance(value, (str, int, float, bool))},
        "stop": iteration.stop,
        "message": iteration.message,
    }


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
