"""A trace as text for a terminal: header, one line a round, the text itself, the counts.

Every mark reads without colour: ✓ accepted, ✗ rejected, · not reached, ⌿ cut off by a stop, ○ a probe; then the token the
target drew: ↻ recovered (after a rejection) or + bonus. Spaces show as ␣, line ends as ⏎, half characters as their bytes.
Model output never reaches the terminal raw: a control character in it could do anything there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from specviz import stats
from specviz.trace import Header, Iteration, Trace
from specviz.views.stream import is_chain
from specviz.views.tokens import glyphs, pieces, running, unfinished, visible

MARKS = {"accepted": "✓", "rejected": "✗", "untested": "·", "discarded": "⌿", "probe": "○", "recovered": "↻", "bonus": "+"}
CODES = {  # of the 256-colour table, legible on black and on white
    "accepted": "4;38;5;32",
    "rejected": "9;38;5;166",
    "recovered": "38;5;175",
    "bonus": "38;5;36",
    "untested": "38;5;245",
    "discarded": "9;38;5;245",
    "probe": "38;5;245",
    "faint": "38;5;245",
    "bold": "1",
}

DEEPEST = 40  # indents: what is deeper stands there too


def paint(text: str, name: str, color: bool) -> str:
    return f"\x1b[{CODES[name]}m{text}\x1b[0m" if color and text else text


def show(trace: Trace, color: bool = False) -> str:
    """The whole trace, lines ended by \\n. With `color` off there is no escape sequence in it."""
    texts = trace.texts()
    lines = [*header_lines(trace.header, color), "", legend(color)]
    lines += [line for it in trace.iterations for line in round_lines(it, texts, color)]
    lines += ["", story(trace, color), "", *summary_lines(stats.summary(trace), color)]
    lines += [paint(f"error: {glyphs(it.message)}", "rejected", color) for it in trace.iterations if it.message]
    return "\n".join(lines) + "\n"


def header_lines(header: Header, color: bool = False) -> list[str]:
    method = [header.method, header.drafter and f"with {header.drafter}", listed(header.knobs)]
    facts = {
        "target": f"{header.target}  ({header.dtype}, {header.device})",
        "method": "  ".join(part for part in method if part),
        "rule": header.rule + ("" if header.lossless else "  NOT EXACT: it changes the distribution"),
        "sampling": listed(header.sampling),
        "prompt": header.prompt if len(header.prompt) <= 300 else header.prompt[:300] + "…",
    }
    return [paint(f"{name:9}", "bold", color) + glyphs(value, " ") for name, value in facts.items()]


def listed(values: Mapping[str, Any]) -> str:
    return ", ".join("size automatic" if (name, value) == ("size", 0) else f"{name} {value}" for name, value in values.items())


def round_lines(it: Iteration, texts: Mapping[int, bytes], color: bool = False) -> list[str]:
    """`12  ✓the ✓cat ✗sat ·on  ↻slept   2/4   21.3 ms`. Under a round whose draft was a tree, that line has the accepted path alone
    and the tree follows, indented: siblings stand one below the other, an only child follows its parent after ›."""
    own = {int(key): bytes.fromhex(value) for key, value in it.texts.items()}
    verdicts = stats.verdicts(it)

    def chip(token: int, name: str) -> str:
        raw = own.get(token, texts.get(token))
        return paint(MARKS[name] + (f"#{token}" if raw is None else visible(raw)), name, color)

    chips = [chip(node.token, verdict) for node, verdict in zip(it.nodes, verdicts, strict=True)]
    chain = is_chain(it)
    if not stats.decided(it):
        last = ""
    elif len(it.emitted) > len(it.path):
        last = chip(it.token, it.kind)
    else:
        last = chip(it.token, "discarded")
    count = f"{stats.accepted_count(it)}/{stats.draft_depth(it)}" if it.nodes else "–"
    probes = verdicts.count("probe")
    wide = "" if chain else f"{len(chips) - probes} candidates" + (f", {probes} probe{'s' * (probes > 1)}" if probes else "")
    tail = [count, wide, f"{1000 * it.time:.1f} ms", glyphs(it.reason, " "), f"stop: {it.stop}" if it.stop else ""]
    drafted = " ".join(chips if chain else (chips[i] for i in it.path))
    parts = [paint(f"{it.index + 1:4}", "faint", color), drafted, last, paint("  ".join(part for part in tail if part), "faint", color)]
    first = "  ".join(part for part in parts if part)
    return [first] if chain else [first, *tree_lines(it, chips, verdicts, color)]


def tree_lines(it: Iteration, chips: Sequence[str], verdicts: Sequence[str], color: bool = False, most: int = 16) -> list[str]:
    """The tree of a round, or, where that is more than `most` lines, what of it was judged and how much there was beside that."""
    children: dict[int, list[int]] = {}
    for i, node in enumerate(it.nodes):
        children.setdefault(node.parent, []).append(i)
    below = {-1}  # nodes that were judged, and those above them
    for i in reversed(range(len(it.nodes))):
        if i in below or verdicts[i] not in ("untested", "probe"):
            below |= {i, it.nodes[i].parent}

    def outline(shown: Callable[[int], bool]) -> list[str]:
        kids = {node: [child for child in found if shown(child)] for node, found in children.items()}
        lines, waiting = [], [(child, 0) for child in reversed(kids.get(-1, []))]
        while waiting:
            node, indent = waiting.pop()
            line = [chips[node]]
            while len(kids.get(node, [])) == 1:
                (node,) = kids[node]
                line.append(chips[node])
            lines.append("      " + "  " * min(indent, DEEPEST) + " › ".join(line))
            waiting += [(child, indent + 1) for child in reversed(kids.get(node, []))]
        return lines

    lines = outline(lambda node: True)
    if len(lines) <= most:
        return lines
    left = Counter(verdict for i, verdict in enumerate(verdicts) if i not in below)
    said = [f"{left[name]} {word}" for name, word in (("untested", "candidates not reached"), ("probe", "probes")) if left[name]]
    return [*outline(below.__contains__), paint("      and " + ", ".join(said), "faint", color)]


def story(trace: Trace, color: bool = False) -> str:
    """What was generated, each character in the colour of the token that completed it."""
    texts = trace.texts()
    marked = [pair for it in trace.iterations for pair in stats.origins(it)]
    parts = [texts.get(token, b"") for token, _ in marked]
    done = []
    for piece in pieces(parts):
        name = marked[piece.tokens[-1]][1]
        # one code per line: pagers and terminals lose a colour that runs over a line end
        done.append("\n".join(paint(one, name, color) for one in running(piece.raw).split("\n")))
    tail = unfinished(b"".join(parts))
    return "".join(done) + (paint(f"  (ends inside a character: {tail} byte{'s' * (tail > 1)})", "faint", color) if tail else "")


def number(value: float | None, digits: int = 2) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def rate(value: float | None, a: int, b: int) -> str:
    return f"{a}/{b} = " + ("n/a" if value is None else f"{100 * value:.1f} %")


def summary_lines(total: stats.Summary, color: bool = False) -> list[str]:
    seconds = total.seconds
    split = ", ".join(f"{part} {seconds[part]:.3f}" for part in stats.PARTS if part != "prefill")
    means = f"{number(total.tau)} tokens a target pass, {number(total.mean_accepted)} of them accepted"
    facts = {
        "tokens": f"{total.new_tokens} in {total.iterations} target passes: {means}",
        "accepted": f"{rate(total.alpha, total.accepted, total.examined)} of examined,"
        f" {rate(total.accepted_of_drafted, total.accepted, total.drafted)} of drafted",
        "seconds": f"{seconds['total']:.3f} ({split}), prefill {seconds['prefill']:.3f} apart",
        "speed": f"{number(total.tokens_per_s, 1)} tokens a second",
        "stop": (total.stop or "still running") + (f", {total.discarded} tokens cut off" if total.discarded else ""),
    }
    return [paint(f"{name:9}", "bold", color) + value for name, value in facts.items()]


def legend(color: bool = False) -> str:
    names: Sequence[str] = ("accepted", "rejected", "untested", "recovered", "bonus")
    return "  ".join(paint(f"{MARKS[name]} {'not reached' if name == 'untested' else name}", name, color) for name in names)


def stream_lines(records: Iterator[Header | Iteration], color: bool = False) -> Iterator[str]:
    """The same lines while a run goes on: for `run` on a terminal."""
    texts: dict[int, bytes] = {}
    for record in records:
        texts |= {int(key): bytes.fromhex(value) for key, value in record.texts.items()}
        yield from header_lines(record, color) if isinstance(record, Header) else round_lines(record, texts, color)
