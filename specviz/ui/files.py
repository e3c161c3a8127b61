"""Trace files: a race is its lanes' traces, one after the other or in a file each. Nothing in an opened file is believed unchecked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specviz.race import MAX_LANES
from specviz.trace import MAX_BYTES, Trace, dumps, loads, split
from specviz.ui.form import AskError
from specviz.ui.run import Run
from specviz.views import stream


def text_of(traces: Mapping[str, Trace]) -> str:
    return "".join(dumps(trace) for trace in traces.values())


def lanes_of(text: str | bytes) -> dict[str, Trace]:
    """Lane name -> trace, plain first. Raises TraceError for what is no trace and AskError for too much of it."""
    if len(text) > MAX_BYTES:
        raise AskError("page.err.size", most=MAX_BYTES // 1_000_000)
    parts = split(text)
    if len(parts) > MAX_LANES:
        raise AskError("page.err.lanes_file", most=MAX_LANES)
    lanes: dict[str, Trace] = {}
    for part in parts:
        trace = loads(part)
        name, number = trace.header.method[:40] or "?", 2
        while name in lanes:
            name, number = f"{trace.header.method[:40]} {number}", number + 1
        lanes[name] = trace
    return dict(sorted(lanes.items(), key=lambda lane: lane[1].header.method != "plain"))


def opened(paths: Sequence[Path]) -> dict[str, Trace]:
    """The lanes of several files. One request may name a large file a thousand times, so nothing is read before all are measured."""
    if sum(path.stat().st_size for path in paths) > MAX_BYTES:
        raise AskError("page.err.size", most=MAX_BYTES // 1_000_000)
    return lanes_of(b"\n".join(path.read_bytes() for path in paths))


def recorded(lanes: Mapping[str, Trace], labels: Mapping[str, str], run_id: str = "") -> Run:
    """A Run that has already ended, to be shown and asked for details like any other."""
    run = Run({lane: labels.get(lane, lane) for lane in lanes}, run_id)
    run.headers = {lane: trace.header for lane, trace in lanes.items()}
    run.iterations = {lane: trace.iterations for lane, trace in lanes.items()}
    run.lines = [stream.replay(run.id, lanes, run.labels)]
    run.done.set()
    return run


def bundled(folder: Path, labels: Mapping[str, str]) -> Run | None:
    """The run that the page opens with: every file of the folder is a lane or a whole race. None when there is none."""
    paths = sorted(folder.glob("*.jsonl"))
    return recorded(opened(paths), labels, "recorded") if paths else None
