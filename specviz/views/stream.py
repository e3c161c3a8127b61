"""Records of a run -> the light JSON lines that both views of the page draw while it goes on.

One string that only ever grows is what the page framework sends cheaply (the appended tail alone), so every line is
complete in itself and short: what happened, not why. The laws behind it are fetched one iteration at a time (`detail`).

A value is: one "run" line, then in any order a "head" line and iterations of each lane, notes, and "end" lines.
Iterations are lists, because they are the many:
[lane, index, start, [draft, target, verify, commit, record], passes, letters, bytes, reason, stop, message, prefill, parents]
with empty items at the end left out. `parents` is there for trees alone: in a chain each node follows the one before it.
Seconds are on the lane's own clock. `letters` has one letter a drafted node, in order, and one for the last token:
accepted, rejected, untested, o (probe, never a candidate), then c (recovered), b (bonus) or p (plain step: nothing had
been drafted); upper case was cut off by a stop and counts nowhere. `bytes` names the same tokens in hexadecimal, joined by
commas; "!" in front marks a special token.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from specviz import compare, stats, theory
from specviz.trace import Header, Iteration, Trace

STATES = ("waiting", "loading", "refused", "error", "stopped")
PHASES = ("draft", "target", "verify", "commit", "record")
SPECIAL = re.compile(rb"<\|[^<>|\s]+\|>|</?s>|<(?:pad|unk|bos|eos|mask)>")
PROMPT = 400  # characters of the prompt that the page shows


def run(run_id: str, lanes: Mapping[str, str]) -> str:
    """First line of a value. lanes: lane -> label, in the order in which they are shown."""
    return _line({"k": "run", "run": run_id, "lanes": [list(pair) for pair in lanes.items()]})


def head(lane: str, header: Header) -> str:
    return _line(
        {
            "k": "head",
            "lane": lane,
            "method": header.method,
            "lossless": header.lossless,
            "rule": header.rule,
            "knobs": header.knobs,
            "sampling": header.sampling,
            "target": header.target,
            "drafter": header.drafter,
            "device": header.device,
            "dtype": header.dtype,
            "capture": header.capture,
            "max_new": header.max_new,
            "context": header.context,
            "prompt": header.prompt[:PROMPT],
            "prompt_tokens": len(header.prompt_ids),
            "versions": header.versions,
        }
    )


def step(lane: str, header: Header, iteration: Iteration) -> str:
    seconds = [_short(iteration.seconds.get(phase, 0.0)) for phase in PHASES]
    tokens = [node.token for node in iteration.nodes] + [iteration.token]
    names = ",".join(token_name(token, iteration.texts, header.stop_ids) for token in tokens)
    prefill = _short(iteration.seconds.get("prefill", 0.0))
    items = [lane, iteration.index, _short(iteration.start), seconds, iteration.passes, letters(iteration), names]
    parents = [node.parent for node in iteration.nodes]
    items += [iteration.reason, iteration.stop, iteration.message, prefill, [] if is_chain(iteration) else parents]
    while len(items) > 7 and not items[-1]:
        items.pop()
    return _line(items)


def note(lane: str, state: str, message: str = "") -> str:
    """A lane (or with lane "" the whole run) changed its state; the message is shown as it is, as text."""
    if state not in STATES:
        raise ValueError(f"the state of a lane is one of {', '.join(STATES)}, not {state!r}")
    return _line({"k": "note", "lane": lane, "state": state, "message": message})


def finish(traces: Mapping[str, Trace]) -> list[str]:
    """Once all lanes have ended: one "end" line for each lane that is compared with the plain one, if there is one."""
    plain = next((trace for trace in traces.values() if trace.header.method == "plain"), None)
    if plain is None:
        return []
    return [_line({"k": "end", "lane": lane, **verdict(trace, plain)}) for lane, trace in traces.items() if trace is not plain]


def replay(run_id: str, traces: Mapping[str, Trace], labels: Mapping[str, str] | None = None) -> str:
    """The whole value of a recorded run, as it would have been streamed."""
    lines = [run(run_id, {lane: (labels or {}).get(lane, lane) for lane in traces})]
    lines += [head(lane, trace.header) for lane, trace in traces.items()]
    lines += [step(lane, trace.header, iteration) for lane, trace in traces.items() for iteration in trace.iterations]
    return "".join(lines + finish(traces))


def verdict(lane: Trace, plain: Trace) -> dict[str, Any]:
    """Measured and predicted speed-up, the first difference of the texts and how near a tie it was, why it is slower.

    What cannot be told is None: texts drawn at random differ by chance, an empty lane has no speed.
    """
    own, base = stats.summary(lane), stats.summary(plain)
    speeds = own.tokens_per_s, base.tokens_per_s
    measured = speeds[0] / speeds[1] if speeds[0] and speeds[1] else None
    found: dict[str, Any] = {
        "speedup": measured,
        "predicted": None,
        "same": None,
        "at": None,
        "margin": None,
        "near_tie": None,
        "slower": None,
    }
    if lane.header.sampling.get("temperature"):
        found["same_reason"] = "random"
    elif not lane.ids or not plain.ids:
        found["same_reason"] = "nothing"
    else:
        at = compare.same_text(lane, plain)
        found |= {"same": at is None, "at": at}
        if at is not None:
            margin = compare.margin(lane, plain, at)
            gaps = [gap.logits for gap in (margin.a, margin.b) if gap is not None and math.isfinite(gap.logits)]
            found |= {"margin": min(gaps, default=None), "near_tie": margin.near_tie}
    cost = compare.costs(lane, plain)
    if cost is None or measured is None or own.tau is None:
        return found
    depths = [stats.draft_depth(it) for it in lane.iterations if stats.decided(it)]
    if (tau := compare.predicted_tau(lane)) is not None:
        found["predicted"] = cost.speedup(tau)
    key = compare.slower_reason(measured, own.tau, cost)
    if key is not None:
        # over the lengths that were drafted, rounds without a draft included: those cost time and cannot gain any
        needed = theory.alpha_from_tokens(max(1.0, cost.round / (1 + cost.plain_extra)), depths)
        facts = {"gamma": cost.gamma, "alpha": own.alpha, "needed": needed, "c": cost.c, "v": cost.v, "tau": own.tau}
        facts["even"] = cost.round / (1 + cost.plain_extra)  # tokens a round that pay for it, whatever the shape of the draft
        facts |= {"draft": cost.draft, "overhead": cost.overhead, "record": cost.record}
        # only where a draft is as long as asked for, and no tree, does another length mean another speed
        if own.alpha is not None and cost.c is not None and cost.gamma > 0 and cost.chain:
            curve = compare.by_length(cost, own.alpha)
            best = max(range(len(curve)), key=curve.__getitem__)
            facts |= {"best": best, "best_speedup": curve[best]}
        found["slower"] = {"key": key, **facts}
    return found


def letters(iteration: Iteration) -> str:
    """One letter a node and one for the last token, as the module's docstring says; "x" ends a round nothing was drawn in."""
    tested, path = {test.node for test in iteration.tests}, set(iteration.path)
    cut = {True: "A", False: "R"}
    short = {"accepted": "a", "rejected": "r", "untested": "u", "probe": "o"}
    found = [short.get(verdict) or (cut[i in path] if i in tested else "u") for i, verdict in enumerate(stats.verdicts(iteration))]
    last = "c" if iteration.kind == "recovered" else "b" if any(letter != "o" for letter in found) else "p"
    if not stats.decided(iteration):
        last = "x"
    elif len(iteration.emitted) <= len(iteration.path):
        last = last.upper()
    return "".join(found) + last


def is_chain(iteration: Iteration) -> bool:
    """Whether the draft was one line of candidates, which is drawn as such; anything else is a tree."""
    return all(node.parent == i - 1 and not node.probe for i, node in enumerate(iteration.nodes))


def token_name(token: int, texts: Mapping[str, str], stop_ids: Iterable[int]) -> str:
    """Hexadecimal bytes of a token, "!" in front of one that stands for no text of its own."""
    name = texts.get(str(token), "")
    special = token in stop_ids or SPECIAL.fullmatch(bytes.fromhex(name)) is not None
    return ("!" if special else "") + name


def _short(seconds: float) -> float:
    return round(seconds, 6)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
