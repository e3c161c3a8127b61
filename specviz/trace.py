"""The record of a run: a header and one Iteration a round. Plain frozen values, JSON lines on disk, no torch.

Everything that is drawn, printed or counted is computed from these values and nothing else, so live view, replay,
import and tests are the same code. Token text is kept as bytes (hex), because one character may span several tokens.

Times are seconds. Probabilities are after all sampling settings unless a name says `model`. Ids are the target's.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

FORMAT = "specviz-trace"
VERSION = 1
MAX_BYTES = 32_000_000  # of a file that is imported
STOPS = ("", "end_of_text", "stop_string", "limit", "context", "stopped", "error")


class TraceError(ValueError):
    """One sentence that says which line of an imported trace is wrong and how."""


@dataclass(frozen=True)
class Header:
    target: str
    method: str
    lossless: bool
    knobs: dict[str, Any]
    rule: str  # acceptance rule, a key of verify.RULES
    sampling: dict[str, Any]  # the fields of Sampling, the seed that was used included
    prompt: str
    prompt_ids: list[int]
    max_new: int
    stop_strings: list[str]
    stop_ids: list[int]
    context: int  # positions the target can hold
    dtype: str
    device: str
    capture: int  # top-k entries kept a row; 0 = measured without capture
    drafter: str = ""  # name of the draft model or head, where the method has one
    versions: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # id -> hex bytes of the prompt's tokens
    format: str = FORMAT
    version: int = VERSION


@dataclass(frozen=True)
class Node:
    """One drafted token. `parent` is -1 for children of the root (the last committed token)."""

    token: int
    parent: int
    depth: int  # 1 for a child of the root
    p: float  # target probability of this token after its parent
    q: float | None  # draft probability in the law it was drawn from; None: picked without randomness, q := 1
    rank: int  # 0 = the target's most likely token after this parent
    probe: bool = False  # scored, never a candidate


@dataclass(frozen=True)
class Row:
    """Laws over the vocabulary after one node (-1: the root), on the union of their most likely tokens.

    What the listed tokens leave over is the rest mass, 1 - sum. `q` is the law of the first child that was drawn;
    `residual` is filled on the one row where a rejection made the last token be drawn from it.
    """

    after: int
    ids: list[int]
    p: list[float]
    model: list[float]  # target at temperature 1, no filters
    q: list[float] | None = None
    residual: list[float] | None = None
    overlap: float | None = None  # sum over the whole vocabulary of min(p, q)


@dataclass(frozen=True)
class Test:
    """One coin toss: accepted exactly when u < threshold. threshold is min(1, p/q) under the token rule."""

    node: int
    p: float
    q: float
    u: float
    threshold: float
    accepted: bool


@dataclass(frozen=True)
class Iteration:
    index: int
    start: float  # on the lane's own clock, prefill excluded
    root: int
    nodes: list[Node]
    rows: list[Row]
    tests: list[Test]
    path: list[int]  # accepted nodes, root to leaf
    token: int  # drawn by the target after the last accepted node
    kind: str  # "recovered" after a rejection, "bonus" when no candidate was left (plain decoding: always)
    draw: float  # the uniform number that drew `token`
    emitted: list[int]  # what was committed: the path's tokens and `token`, cut at a stop
    discarded: list[int]  # what a stop cut off; counts nowhere
    seconds: dict[str, float]  # draft, target, verify, commit, record; and prefill in iteration 0
    passes: int  # sequential forwards of the drafter
    reason: str = ""  # why fewer tokens were drafted than asked for
    note: dict[str, Any] = field(default_factory=dict)
    stop: str = ""  # one of STOPS
    message: str = ""  # for stop "error": the sentence shown
    texts: dict[str, str] = field(default_factory=dict)  # id -> hex bytes, for every id named above

    @property
    def time(self) -> float:
        """Decode seconds of this iteration, prefill excluded."""
        return sum(value for name, value in self.seconds.items() if name != "prefill")


@dataclass(frozen=True)
class Trace:
    header: Header
    iterations: list[Iteration]

    @property
    def ids(self) -> list[int]:
        return [token for iteration in self.iterations for token in iteration.emitted]

    @property
    def stop(self) -> str:
        return self.iterations[-1].stop if self.iterations else ""

    def texts(self) -> dict[int, bytes]:
        merged = dict(self.header.texts)
        for iteration in self.iterations:
            merged.update(iteration.texts)
        return {int(key): bytes.fromhex(value) for key, value in merged.items()}

    def text(self) -> str:
        """What was generated, as text; an unfinished character at the end shows as U+FFFD."""
        texts = self.texts()
        return b"".join(texts.get(token, b"") for token in self.ids).decode("utf-8", "replace")


def line(record: Header | Iteration) -> str:
    """One JSON line, strict JSON (no NaN)."""
    return json.dumps(dataclasses.asdict(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps(trace: Trace) -> str:
    return "".join(line(record) + "\n" for record in (trace.header, *trace.iterations))


def loads(text: str | bytes) -> Trace:
    """Reads and checks a trace from anybody. Raises TraceError; never trusts a number, a length or an index."""
    if len(text) > MAX_BYTES:
        raise TraceError(f"This trace is larger than {MAX_BYTES // 1_000_000} MB; export a shorter run.")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise TraceError("This file is not UTF-8 text, so it is not a trace; choose a .jsonl file saved by specviz.") from None
    lines = [one for one in text.split("\n") if one.strip()]
    if not lines:
        raise TraceError("This file is empty; choose a .jsonl file saved by specviz.")
    first = _json(lines[0], 1)
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise TraceError("This file is not a specviz trace: its first line is not a trace header.")
    if first.get("version") != VERSION:
        raise TraceError(f"This trace has format version {first.get('version')!r:.20}; this specviz reads version {VERSION}.")
    header = _build(Header, first, "line 1")
    iterations = []
    for number, one in enumerate(lines[1:], 2):
        iteration = _build(Iteration, _json(one, number), f"line {number}")
        _check(iteration, len(iterations), f"line {number}")
        iterations.append(iteration)
    return Trace(header, iterations)


def read_lines(lines: Iterable[str]) -> Iterator[Header | Iteration]:
    """Reads lines this program wrote itself, one by one, while a run is still going on."""
    for number, one in enumerate(lines):
        yield _build(Iteration if number else Header, json.loads(one), f"line {number + 1}")


def _json(text: str, number: int) -> Any:
    def refuse(name: str) -> None:
        raise TraceError(f"Line {number} of this trace holds {name}, which is not a number.")

    try:
        return json.loads(text, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError):
        raise TraceError(f"Line {number} of this trace is not JSON; the file is damaged or cut off.") from None


def _build(kind: Any, value: Any, where: str) -> Any:
    """A value of the annotated type, or TraceError. Covers what the records above use, nothing more."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin is types.UnionType:
        options = typing.get_args(kind)
        return None if value is None else _build(options[0], value, where)
    if origin is list:
        if not isinstance(value, list):
            raise TraceError(f"{where}: expected a list.")
        (item,) = typing.get_args(kind)
        return [_build(item, one, where) for one in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise TraceError(f"{where}: expected an object.")
        _, item = typing.get_args(kind)
        return {str(key): _build(item, one, where) for key, one in value.items()}
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TraceError(f"{where}: expected an object.")
        hints = typing.get_type_hints(kind)
        known = {f.name: f for f in dataclasses.fields(kind)}
        missing = [
            name
            for name, f in known.items()
            if name not in value and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise TraceError(f"{where}: {missing[0]!r} is missing.")
        return kind(**{name: _build(hints[name], value[name], f"{where}, {name}") for name in known if name in value})
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise TraceError(f"{where}: expected a finite number.")
        return float(value)
    if kind is int and (isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53):
        raise TraceError(f"{where}: expected a whole number.")
    if kind in (str, bool) and not isinstance(value, kind):
        raise TraceError(f"{where}: expected {'text' if kind is str else 'true or false'}.")
    return value


def _check(it: Iteration, index: int, where: str) -> None:
    """What the types cannot say: indices in range, probabilities in [0, 1], one table one length."""

    def require(condition: bool, sentence: str) -> None:
        if not condition:
            raise TraceError(f"{where}: {sentence}")

    count = len(it.nodes)
    require(it.index == index, f"iteration {it.index} stands where iteration {index} belongs.")
    require(it.stop in STOPS, "the stop reason is unknown.")
    require(it.kind in ("recovered", "bonus"), "the kind of the last token is unknown.")
    require(it.passes >= 0 and it.start >= 0 and all(s >= 0 for s in it.seconds.values()), "a time or count is negative.")
    require(all(-1 <= node.parent < i and node.depth >= 1 for i, node in enumerate(it.nodes)), "a node's parent is not before it.")
    require(all(0 <= i < count for i in (*it.path, *(t.node for t in it.tests))), "a node is named that does not exist.")
    require(all(-1 <= row.after < count for row in it.rows), "a row belongs to a node that does not exist.")
    for row in it.rows:
        columns = [c for c in (row.p, row.model, row.q, row.residual) if c is not None]
        require(all(len(c) == len(row.ids) for c in columns), "the columns of a row differ in length.")
        require(all(0 <= x <= 1.000001 for c in columns for x in c), "a probability is outside [0, 1].")
    values = [n.p for n in it.nodes] + [n.q for n in it.nodes if n.q is not None] + [x for t in it.tests for x in (t.p, t.q, t.u, t.threshold)]
    require(all(0 <= x <= 1.000001 for x in values), "a probability is outside [0, 1].")
    require(all(t.accepted == (t.u < t.threshold) for t in it.tests), "a decision contradicts its own random number.")
    for value in it.texts.values():
        try:
            bytes.fromhex(value)
        except ValueError:
            raise TraceError(f"{where}: the bytes of a token are not hexadecimal.") from None
