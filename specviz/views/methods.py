"""Measured rows -> what the Methods table shows and which method it recommends. Plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What somebody may have or want, and what is then worth trying. The reasons are in the page's tables of strings.
CASES = {
    "model": ("draft_tree", "draft_model"),
    "scratch": ("mtp",),
    "large": ("eagle3", "eagle2", "eagle1", "medusa", "hybrid"),
    "nothing": ("lookups", "token_recycling", "suffix", "prompt_lookup", "lookahead", "early_exit"),
}
NAMED = 3  # methods a case, the fastest first
FASTER = 1.02  # times plain; less than that is noise, and nothing to recommend

Rows = Mapping[str, Mapping[str, Any]]


def table(about: Mapping[str, Any], rows: Rows, refused: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """The value of the page's table. rows: method -> Measurement.row; refused: method -> why it could not be measured, as a key
    of the page's strings and what fills its gaps."""
    return {"about": dict(about), "rows": dict(rows), "refused": dict(refused), "advice": advice(rows), **more}


def advice(rows: Rows) -> dict[str, Any]:
    """ "best": the fastest lossless method here, None while there is none; "speedup": its; "plain": whether nothing beats plain
    decoding; "cases": case -> its measured methods as [method, speed-up], only where there is one."""
    speeds = {name: row["speedup"] for name, row in rows.items() if name != "plain" and row["lossless"]}
    best = max(speeds, key=speeds.__getitem__, default=None)
    cases = {}
    for case, names in CASES.items():
        fitting = sorted((name for name in names if name in speeds), key=speeds.__getitem__, reverse=True)
        if fitting:
            cases[case] = [[name, speeds[name]] for name in fitting[:NAMED]]
    beaten = best is not None and speeds[best] < FASTER
    return {"best": None if beaten else best, "speedup": speeds.get(best), "plain": beaten, "cases": cases}
