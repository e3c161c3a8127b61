"""The record of a run: a header and one Iteration a round. Plain frozen values, JSON lines on disk, no torch.

Everything that is drawn, printed or counted is computed from these values and nothing else, so live view, replay,
import and tests are the same code. Token text is kept as bytes (hex), because one character may span several tokens.

Times are seconds. Probabilities are after all sampling settings unless a name says `model`. Ids are the target's.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from specviz.note import check_note
from specviz.parse import TraceError, build, parse

FORMAT = "specviz-trace"
VERSION = 1
MAX_BYTES = 32_000_000  # of a file that is imported
MAX_WIDTH = 10_000  # nodes of a round, entries of a row in it
MAX_STOP_IDS = 1000  # each token that is drawn is looked for among them
_HEX = re.compile("(?:[0-9a-fA-F]{2})*")
STOPS = ("", "end_of_text", "stop_string", "limit", "context", "stopped", "error")


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
    p: float | None  # target probability of this token after its parent; None: not recorded
    q: float | None  # draft probability in the law it was drawn from; None: picked without randomness, q := 1
    rank: int  # 0 = the target's most likely token after this parent; -1: not recorded
    probe: bool = False  # scored, never a candidate


@dataclass(frozen=True)
class Row:
    """Laws over the vocabulary after one node (-1: the root), on the union of their most likely tokens.

    What the listed tokens leave over is the rest mass, 1 - sum. `q` is the law that the first candidate was drawn from:
    siblings drawn without replacement each have it without the ones before them, renormalised, in which Node.q is theirs.
    `residual` is filled on the one row where a rejection made the last token be drawn from it. There is a row after the
    root, after every node with candidates, and after the last accepted one.
    """

    after: int
    ids: list[int]
    p: list[float]
    model: list[float]  # target at temperature 1, no filters
    q: list[float] | None = None
    residual: list[float] | None = None
    # P(accept) under the token rule. q given: of the first candidate, the sum over the whole vocabulary of min(p, q);
    # candidates chosen without randomness: of any of them, the sum of their p. None where there is no candidate.
    overlap: float | None = None


@dataclass(frozen=True)
class Test:
    """One coin toss: accepted exactly when u < threshold. threshold: min(1, p/q) under the token rule, 0 or 1 under the typical one."""

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
    texts: dict[str, str] = field(default_factory=dict)  # id -> hex bytes, for every id named above, in the note too

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
    lines = [(number, one) for number, one in enumerate(_decoded(text).split("\n"), 1) if one.strip()]
    if not lines:
        raise TraceError("This file is empty; choose a .jsonl file saved by specviz.")
    (number, one), *rest = lines
    first = parse(one, number)
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise TraceError("This file is not a specviz trace: its first line is not a trace header.")
    if first.get("version") != VERSION:
        raise TraceError(f"This trace has another format version; this specviz reads version {VERSION}.")
    header = build(Header, first, f"Line {number}")
    _check_header(header, f"Line {number}")
    iterations: list[Iteration] = []
    for number, one in rest:
        iteration = build(Iteration, parse(one, number), f"Line {number}")
        _check(iteration, header, iterations[-1] if iterations else None, f"Line {number}")
        iterations.append(iteration)
    return Trace(header, iterations)


def split(text: str | bytes) -> list[str]:
    """Several traces, one after the other in a file: one text a trace for `loads`. Raises TraceError.

    Blank lines stand for what came before, so that a complaint names the line of the file.
    """
    parts: list[tuple[int, list[str]]] = []  # lines before it, its lines
    for number, one in enumerate(_decoded(text).split("\n")):
        # Quotes inside a JSON string are escaped, so only a field of this name can match.
        if not parts or f'"format":"{FORMAT}"' in one.replace(" ", ""):
            parts.append((number, []))
        parts[-1][1].append(one)
    return ["\n" * before + "\n".join(lines) for before, lines in parts]


def _decoded(text: str | bytes) -> str:
    if len(text) > MAX_BYTES:
        raise TraceError(f"This trace is larger than {MAX_BYTES // 1_000_000} MB; export a shorter run.")
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise TraceError("This file is not UTF-8 text, so it is not a trace; choose a .jsonl file saved by specviz.") from None
    return text


def read_lines(lines: Iterable[str]) -> Iterator[Header | Iteration]:
    """Reads lines this program wrote itself, one by one, while a run is still going on."""
    for number, one in enumerate(lines):
        yield build(Iteration if number else Header, json.loads(one), f"Line {number + 1}")


def _require(condition: bool, where: str, sentence: str) -> None:
    if not condition:
        raise TraceError(f"{where}: {sentence}")


def _check_ids(ids: Iterable[int], texts: dict[str, str], where: str) -> None:
    _require(all(0 <= i < 2**31 for i in ids), where, "a token id is out of range.")
    _require(all(k.isascii() and k.isdigit() and len(k) < 11 for k in texts), where, "a text belongs to something that is no token id.")
    _require(all(len(v) <= 4096 and _HEX.fullmatch(v) for v in texts.values()), where, "the bytes of a token are not hexadecimal.")


def _check_header(header: Header, where: str) -> None:
    _check_ids((*header.prompt_ids, *header.stop_ids), header.texts, where)
    _require(len(header.stop_ids) <= MAX_STOP_IDS, where, f"more than {MAX_STOP_IDS} ids end a text.")
    _require(min(header.max_new, header.context, header.capture) >= 0, where, "a limit is negative.")


def _check(it: Iteration, header: Header, before: Iteration | None, where: str) -> None:
    """What the types cannot say: indices in range, probabilities in [0, 1], and a story that does not contradict itself."""

    def require(condition: bool, sentence: str) -> None:
        _require(condition, where, sentence)

    nodes, count = it.nodes, len(it.nodes)
    require(count <= MAX_WIDTH and all(len(row.ids) <= MAX_WIDTH for row in it.rows), f"more than {MAX_WIDTH} entries in a table.")
    void = not it.emitted and not it.discarded  # ended by Stop or by an error before anything was decided
    require(it.index == (before.index + 1 if before else 0), f"iteration {it.index} stands where another one belongs.")
    require(before is None or not before.stop, "the run goes on after it stopped.")
    require(it.stop in STOPS, "the stop reason is unknown.")
    require(it.kind in ("recovered", "bonus"), "the kind of the last token is unknown.")
    times = (it.start, *it.seconds.values())
    require(it.passes >= 0 and all(0 <= s < 1e9 for s in times), "a time or count is out of range.")
    require(before is None or it.start >= before.start, "the clock runs backwards.")
    require(all(-1 <= node.parent < i for i, node in enumerate(nodes)), "a node's parent is not before it.")
    require(all(n.depth == (nodes[n.parent].depth + 1 if n.parent >= 0 else 1) for n in nodes), "a node's depth contradicts its parent.")
    require(all(n.rank >= -1 for n in nodes), "a rank is out of range.")
    require(all(0 <= i < count for i in (*it.path, *(t.node for t in it.tests))), "a node is named that does not exist.")
    require(all(nodes[b].parent == a for a, b in zip((-1, *it.path), it.path, strict=False)), "the path is not a chain from the root.")
    require(not any(nodes[i].probe for i in (*it.path, *(t.node for t in it.tests))), "a token that was no candidate is judged.")
    _check_ids((it.root, *(n.token for n in nodes), *it.emitted, *it.discarded, *(() if void else (it.token,))), it.texts, where)

    values = [x for n in nodes for x in (n.p, n.q) if x is not None] + [it.draw]
    values += [x for t in it.tests for x in (t.p, t.q, t.u, t.threshold)] + [r.overlap for r in it.rows if r.overlap is not None]
    require(all(0 <= x <= 1.000001 for x in values), "a probability is outside [0, 1].")
    require(all(-1 <= row.after < count for row in it.rows), "a row belongs to a node that does not exist.")
    require(len({row.after for row in it.rows}) == len(it.rows), "a node has two rows.")
    for row in it.rows:
        columns = [c for c in (row.p, row.model, row.q, row.residual) if c is not None]
        _check_ids(row.ids, {}, where)
        require(len(set(row.ids)) == len(row.ids), "a row names a token twice.")
        require(all(len(c) == len(row.ids) for c in columns), "the columns of a row differ in length.")
        require(all(0 <= x <= 1.000001 for c in columns for x in c), "a probability is outside [0, 1].")
        require(all(sum(c) < 1.001 for c in columns), "the probabilities of a row sum to more than 1.")

    tail = header.prompt_ids[-1:] if before is None else before.emitted[-1:]
    require(not tail or it.root == tail[0], "the root is not the last token before this iteration.")
    require(it.stop != "" or not (void or it.discarded), "tokens were cut off although the run did not stop.")
    require(void or it.emitted + it.discarded == [nodes[i].token for i in it.path] + [it.token], "what was emitted contradicts the path.")
    check_note(it.note, len(nodes), require)
    if not void:
        _check_tests(it, header.rule, require)


def _check_tests(it: Iteration, rule: str, require: Callable[[bool, str], None]) -> None:
    """The tosses, in order, must lead to the path and to the kind of the last token."""
    require(all(t.accepted == (t.u < t.threshold) for t in it.tests), "a decision contradicts its own random number.")
    require(len({t.node for t in it.tests}) == len(it.tests), "a token is judged twice.")
    end = it.path[-1] if it.path else -1
    require([t.node for t in it.tests if t.accepted][-1:] == it.path[-1:], "the decisions do not lead to the path.")
    rejected = any(not t.accepted and it.nodes[t.node].parent == end for t in it.tests)
    require(rejected == (it.kind == "recovered"), "the kind of the last token contradicts the decisions.")
    if rule in ("token", "typical"):  # block verification judges tokens past the first failure too
        at = -1
        for t in it.tests:
            require(it.nodes[t.node].parent == at, "the decisions are not in the order of the tree.")
            if rule == "token":
                require(t.q == 0 or abs(t.threshold - min(1.0, t.p / t.q)) < 1e-4, "a threshold is not min(1, p/q).")
            else:
                require(t.threshold in (0.0, 1.0), "a threshold of a rule without chance is neither 0 nor 1.")
            at = t.node if t.accepted else at
