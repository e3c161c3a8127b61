"""One row of laws -> bars: target p solid, draft q hatched, residual dotted, and what the listed tokens leave over."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from specviz.trace import Row
from specviz.views.charts import bar, blank, literal
from specviz.views.palette import ACCEPTED, RECOVERED, REJECTED, WORDS
from specviz.views.tokens import labels


def rest(column: list[float]) -> float:
    """Mass of all tokens that are not listed."""
    return max(0.0, 1.0 - sum(column))


def laws(row: Row, texts: Mapping[int, bytes], lang: str = "en", dark: bool = False, model: bool = False) -> go.Figure:
    """One group of bars a token id, most likely first; the last group is the rest. `model`: p at temperature 1 without filters.

    Groups are placed by number and only named by text, so tokens that read alike can neither merge nor vanish.
    """
    words = WORDS[lang]
    target = row.model if model else row.p
    order = sorted(range(len(row.ids)), key=lambda i: (-target[i], row.ids[i]))
    names = [literal(name) for name in labels([row.ids[i] for i in order], texts)] + [words["rest"]]
    places = list(range(len(names)))
    figure = blank(words["laws"], words["probability"], "", dark, height=130 + 46 * len(names))
    columns = [("target_p", target, ACCEPTED, ""), ("draft_q", row.q, REJECTED, "/"), ("residual", row.residual, RECOVERED, ".")]
    for name, column, colour, pattern in columns:
        if column:
            x = [column[i] for i in order] + [rest(column)]
            hover = [f"{label}<br>{words[name]} = {value:.6g}" for label, value in zip(names, x, strict=True)]
            figure.add_trace(bar(words[name], x, places, colour, pattern, dark, orientation="h", hovertext=hover, hoverinfo="text"))
    figure.update_yaxes(tickmode="array", tickvals=places, ticktext=names, autorange="reversed", rangemode="normal")
    return figure.update_layout(barmode="group", showlegend=True).update_xaxes(range=[0, 1])
