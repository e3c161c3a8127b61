"""Traces -> plotly figures, drawn once a run has ended. Only bars and scatters, which every plotly.js of the last years knows.

`lang`: "en" or "zh". `dark`: for a dark page; backgrounds are transparent either way. Lanes are named as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from specviz import stats, theory
from specviz.compare import by_length, costs, is_chain
from specviz.trace import Trace
from specviz.views.palette import ACCEPTED, BONUS, LANES, PARTS, RECOVERED, REJECTED, UNTESTED, WORDS


def literal(text: str) -> str:
    """Text as plotly must be given it to draw it as it is: it reads a little HTML, and formulas between dollar signs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")


def blank(title: str, x: str, y: str, dark: bool, height: int = 320) -> go.Figure:
    ink, grid = ("#E6E6E6", "#4A4A4A") if dark else ("#222222", "#D0D0D0")
    axis = dict(gridcolor=grid, zerolinecolor=grid, linecolor=ink, automargin=True)
    return go.Figure(
        layout=go.Layout(
            template="none",
            title=dict(text=title, x=0.02, xanchor="left", y=1, yref="container", yanchor="top", pad_t=32, font_size=15),
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            font=dict(color=ink, size=13),
            hoverlabel=dict(bgcolor="#222222" if dark else "#FFFFFF", font_color=ink),
            xaxis=dict(title_text=x, **axis),
            yaxis=dict(title_text=y, **axis, rangemode="tozero"),
            # at the bottom of the figure, so that one that wraps never meets a title
            legend=dict(orientation="h", x=0, yref="container", y=0, yanchor="bottom", traceorder="normal"),
            margin=dict(l=56, r=16, t=64, b=48),
            height=height,
        )
    )


def bar(name: str, x: Sequence, y: Sequence, colour: str, shape: str, dark: bool, **more) -> go.Bar:
    line = "#E6E6E6" if dark else "#222222"
    pattern = dict(shape=shape, fillmode="overlay", fgcolor=line, fgopacity=0.45, size=8)
    marker = dict(color=colour, pattern=pattern, line=dict(color=line, width=0.5))
    return go.Bar(name=name, x=list(x), y=list(y), marker=marker, **more)


def noted(figure: go.Figure, words: Mapping[str, str]) -> go.Figure:
    """Says so where there is nothing to draw, which a bare frame would leave open."""
    if not any(len(trace.x or ()) for trace in figure.data):
        figure.add_annotation(text=words["nothing"], x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure


def accept_lengths(trace: Trace, lang: str = "en", dark: bool = False) -> go.Figure:
    """Rounds by the number of drafted tokens they accepted."""
    words, counts = WORDS[lang], stats.accept_lengths(trace)
    figure = blank(words["lengths"], words["accepted"], words["rounds"], dark)
    figure.add_trace(
        bar(words["rounds"], range(len(counts)), counts, ACCEPTED, "", dark, text=counts, textposition="outside", cliponaxis=False)
    )
    return noted(figure.update_xaxes(tickmode="linear", dtick=1).update_layout(showlegend=False), words)


def by_position(trace: Trace, lang: str = "en", dark: bool = False) -> go.Figure:
    """For each draft position: how often it was accepted, rejected, not reached; hover gives both rates and their counts."""
    words, positions = WORDS[lang], stats.by_position(trace)
    figure = blank(words["positions"], words["position"], words["rounds"], dark)
    x = [p.depth for p in positions]
    hover = [
        f"{words['of_rounds']}: {percent(p.unconditional)} ({p.accepted}/{p.drafted})<br>"
        f"{words['of_before']}: {percent(p.conditional)} ({p.accepted}/{p.examined})"
        for p in positions
    ]
    columns = {
        "accepted": ([p.accepted for p in positions], ACCEPTED, ""),
        "rejected": ([p.examined - p.accepted for p in positions], REJECTED, "x"),
        "untested": ([p.drafted - p.examined for p in positions], UNTESTED, "."),
    }
    for name, (counts, colour, pattern) in columns.items():
        text = [str(n) if n else "" for n in counts]
        ink = dict(color="#000000" if name == "untested" else "#FFFFFF", size=14)
        style = dict(text=text, textposition="inside", textangle=0, insidetextfont=ink, hovertext=hover, hoverinfo="name+text")
        figure.add_trace(bar(words[name], x, counts, colour, pattern, dark, **style))
    return noted(figure.update_xaxes(tickmode="linear", dtick=1).update_layout(barmode="stack"), words)


def percent(rate: float | None) -> str:
    return "n/a" if rate is None else f"{100 * rate:.1f} %"


def time_split(lanes: Mapping[str, Trace], lang: str = "en", dark: bool = False) -> go.Figure:
    """Milliseconds a token, one stacked bar a lane: the shortest bar is the fastest lane."""
    words = WORDS[lang]
    figure = blank(words["split"], words["ms_token"], "", dark, height=170 + 44 * len(lanes))
    sums = {name: stats.summary(trace) for name, trace in lanes.items()}
    sums = {name: s for name, s in sums.items() if s.new_tokens}
    for part, (colour, pattern) in PARTS.items():
        milliseconds = [1000 * s.seconds[part] / s.new_tokens for s in sums.values()]
        style = dict(orientation="h", hovertemplate="%{x:.2f} " + words["ms"])
        figure.add_trace(bar(words[part], milliseconds, [literal(n) for n in sums], colour, pattern, dark, **style))
    return noted(figure.update_layout(barmode="stack").update_yaxes(autorange="reversed", rangemode="normal", type="category"), words)


def time_of_rounds(trace: Trace, lang: str = "en", dark: bool = False) -> go.Figure:
    """Milliseconds of each round, stacked by part, prefill apart."""
    words = WORDS[lang]
    figure = blank(words["split_rounds"], words["round"], words["ms"], dark)
    for part, (colour, pattern) in PARTS.items():
        milliseconds = [1000 * it.seconds.get(part, 0.0) for it in trace.iterations]
        # patterns on hundreds of thin bars are costly to draw and say nothing
        shape = pattern if len(trace.iterations) <= 80 else ""
        x = [it.index + 1 for it in trace.iterations]  # counted from 1 wherever a person reads it
        figure.add_trace(bar(words[part], x, milliseconds, colour, shape, dark, hovertemplate="%{y:.2f} " + words["ms"]))
    return noted(figure.update_layout(barmode="stack", bargap=0.1), words)


def speed_over_time(lanes: Mapping[str, Trace], lang: str = "en", dark: bool = False) -> go.Figure:
    """Tokens a second since the start, each lane on its own clock."""
    words = WORDS[lang]
    figure = blank(words["speed"], words["seconds"], words["tokens_s"], dark)
    for k, (name, trace) in enumerate(lanes.items()):
        points = stats.speeds(trace)
        colour, dash = LANES[k % len(LANES)]
        line = dict(color=colour, dash=dash, width=2.5)
        figure.add_trace(go.Scatter(x=[p.time for p in points], y=[p.so_far for p in points], mode="lines", name=literal(name), line=line))
    return noted(figure.update_layout(showlegend=True), words)


def expected_tokens(trace: Trace, lang: str = "en", dark: bool = False) -> go.Figure:
    """Tokens a target pass against alpha, for the draft lengths this run had, and the run itself as a point.

    The curve is that of chains: the paths of a tree end at different depths, which alpha alone does not tell.
    """
    words, total = WORDS[lang], stats.summary(trace)
    depths = [stats.draft_depth(it) for it in trace.iterations if stats.decided(it)]
    figure = blank(words["expected"], words["alpha"], words["tokens_pass"], dark)
    if depths and is_chain(trace):
        x = [i / 50 for i in range(51)]
        y = [sum(theory.expected_tokens(alpha, depth) for depth in depths) / len(depths) for alpha in x]
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", name=words["theory"], line=dict(color=ACCEPTED, width=2.5)))
    if total.alpha is not None:
        marker = dict(color=REJECTED, size=13, symbol="diamond")
        figure.add_trace(go.Scatter(x=[total.alpha], y=[total.tau], mode="markers", name=words["measured"], marker=marker))
    return noted(figure.update_layout(showlegend=True), words)


def speedup_by_gamma(
    trace: Trace, plain: Trace, lang: str = "en", dark: bool = False, v: theory.Cost | None = None, most: int = 16
) -> go.Figure:
    """Theory's speed-up for other draft lengths at this run's alpha and costs, and this run as a point.

    v: measured cost of n rows; without it, a straight line through this run's mean target pass. A tree has no length to change.
    """
    words, total, cost = WORDS[lang], stats.summary(trace), costs(trace, plain)
    figure = blank(words["speedup"], words["gamma"], words["times_plain"], dark)
    if cost is not None and total.alpha is not None and cost.gamma > 0:
        if cost.chain:
            curve = by_length(cost, total.alpha, v, most)
            style = dict(color=ACCEPTED, width=2.5)
            figure.add_trace(go.Scatter(x=list(range(most + 1)), y=curve, mode="lines+markers", name=words["theory"], line=style))
            best = max(range(most + 1), key=lambda gamma: curve[gamma])
            ring = dict(color=BONUS, size=15, symbol="star")
            figure.add_trace(go.Scatter(x=[best], y=[curve[best]], mode="markers", name=f"{words['best']}: γ = {best}", marker=ring))
        diamond = dict(color=REJECTED, size=13, symbol="diamond")
        measured = cost.speedup(total.tau)
        figure.add_trace(
            go.Scatter(x=[cost.gamma], y=[measured], mode="markers", name=f"{words['measured']}: {measured:.2f}", marker=diamond)
        )
        line = dict(color=RECOVERED, dash="dot", width=2)
        figure.add_trace(go.Scatter(x=[0, most], y=[1, 1], mode="lines", name=words["break_even"], line=line))
    return noted(figure.update_layout(showlegend=True), words)
