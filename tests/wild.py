"""Recorded runs for the tests of the page, made by hand: awkward tokens, every verdict, both rules, and missing data."""

from __future__ import annotations

import dataclasses

from specviz import trace as tr
from tests import traces

EMOJI = "🤗".encode()
TEXTS = [
    b"<img src=x onerror=\"document.title='x'\">",
    b"${document.title='y'}",
    b"`back` {{value}} ${a='b'}",
    "\ufffd".encode(),
    "中文".encode(),
    EMOJI[:2],
    EMOJI[2:],
    b" two words\n",
    b"\xff\xfe",
    b"<script>document.title='z'</script>",
    b"&lt;b&gt; $5 **not**",
    b"<|im_end|>",
    b"</s",
    " é\t".encode(),
]
FIRST = 100  # id of TEXTS[0]
IDS = [FIRST + k for k in range(len(TEXTS))]
NAMES = {str(FIRST + k): text.hex() for k, text in enumerate(TEXTS)} | {"1": "6869", "2": "3c2f733e"}
SETTINGS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.1, "seed": 7}


def header(**changes) -> tr.Header:
    facts = {"sampling": dict(SETTINGS), "texts": {"1": "6869"}, "target": "<b>model</b>", "prompt": "${x} <i>", "max_new": len(IDS)}
    return traces.header(**{**facts, **changes})


def sampled() -> tr.Trace:
    """The hostile tokens in order: two rounds with a rejection, one with a bonus, then one a round. Each round has q and its laws."""
    its, free, root = [], 0, 1
    for index, (count, drafted) in enumerate([(2, 3), (1, 3), (3, 3)]):
        emitted = IDS[free : free + count + 1]
        spare = [IDS[(free + count + 5 + k) % len(IDS)] for k in range(drafted - count)]
        its.append(
            traces.chain(index, root, [*emitted[:count], *spare], count, emitted[-1], p=0.31 + index / 100, q=0.62, texts=dict(NAMES))
        )
        free, root = free + count + 1, emitted[-1]
    for token in IDS[free:]:
        its.append(traces.chain(len(its), root, [], 0, token, texts=dict(NAMES)))
        root = token
    its = [dataclasses.replace(it, rows=[laws(it)]) for it in its]
    its[-1] = dataclasses.replace(its[-1], stop="limit")
    return tr.Trace(header(), its)


def laws(it: tr.Iteration) -> tr.Row:
    """After the last accepted node: the token that was drawn, the draft that was rejected, and two more."""
    end = it.path[-1] if it.path else -1
    rejected = it.nodes[len(it.path)].token if it.kind == "recovered" else IDS[3]
    ids = list(dict.fromkeys([it.token, rejected, IDS[1], IDS[4]]))
    p, q = [0.4, 0.1, 0.2, 0.1][: len(ids)], [0.1, 0.62, 0.1, 0.05][: len(ids)]
    drafted = len(it.nodes) > len(it.path)
    residual = [max(0.0, a - b) / 0.52 for a, b in zip(p, q, strict=True)] if it.kind == "recovered" else None
    return tr.Row(end, ids, p, [0.25, 0.2, 0.2, 0.1][: len(ids)], q if drafted else None, residual, 0.48 if drafted else None)


def plain(trace: tr.Trace) -> tr.Trace:
    """The same tokens, one a round."""
    its = [traces.chain(k, 1, [], 0, token, texts=dict(NAMES)) for k, token in enumerate(trace.ids)]
    its[-1] = dataclasses.replace(its[-1], stop="limit")
    return tr.Trace(dataclasses.replace(trace.header, method="plain", drafter="", knobs={}), its)


def cut() -> tr.Trace:
    """A stop inside an accepted block: what follows it was discarded."""
    its = [traces.chain(0, 1, [FIRST, 2, FIRST + 1], 3, FIRST + 4, keep=2, stop="end_of_text", texts=dict(NAMES))]
    return tr.Trace(header(), its)


def bare(trace: tr.Trace) -> tr.Trace:
    """Recorded without capture."""
    its = [dataclasses.replace(it, rows=[]) for it in trace.iterations]
    return tr.Trace(dataclasses.replace(trace.header, capture=0), its)


def fixed(trace: tr.Trace) -> tr.Trace:
    """Drafts that were picked without randomness."""
    its = []
    for it in trace.iterations:
        nodes = [dataclasses.replace(node, q=None) for node in it.nodes]
        tests = [dataclasses.replace(t, q=1.0, threshold=t.p, u=t.p * 0.5 if t.accepted else (1 + t.p) / 2) for t in it.tests]
        rows = [dataclasses.replace(row, q=None, overlap=None) for row in it.rows]
        its.append(dataclasses.replace(it, nodes=nodes, tests=tests, rows=rows, passes=0))
    return tr.Trace(dataclasses.replace(trace.header, method="prompt_lookup", drafter=""), its)


def block(trace: tr.Trace) -> tr.Trace:
    """Behind the first token of a round the threshold is another than min(1, p/q)."""
    its = []
    for it in trace.iterations:
        tests = [dataclasses.replace(test, threshold=(test.u + test.accepted) / 2) for test in it.tests[1:]]
        its.append(dataclasses.replace(it, tests=[*it.tests[:1], *tests]))
    return tr.Trace(dataclasses.replace(trace.header, rule="block"), its)


def greedy(trace: tr.Trace) -> tr.Trace:
    settings = {**SETTINGS, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    return tr.Trace(dataclasses.replace(trace.header, sampling=settings), trace.iterations)


def empty_residual(trace: tr.Trace) -> tr.Trace:
    """p equals q up to rounding, and yet there was a rejection."""
    first = trace.iterations[0]
    rows = [dataclasses.replace(row, residual=list(row.p)) for row in first.rows]
    first = dataclasses.replace(first, rows=rows, note={"fell_back": True})
    return tr.Trace(trace.header, [first, *trace.iterations[1:]])
