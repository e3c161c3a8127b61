"""Measured rows -> what the Methods table shows and which method it recommends. Plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What somebody may have, and what is then worth trying, best first. The reasons are in the page's tables of strings.
CASES = {
    "model": ("draft_model",),
    "scratch": ("mtp",),
    "large": ("eagle3", "eagle2"),
    "nothing": ("hybrid", "token_recycling", "suffix", "prompt_lookup"),
}
UNTRAINED = "nothing"  # the case that excludes whatever adds trained weights
FASTER = 1.02  # times plain; less than that is noise, and nothing to recommend

Rows = Mapping[str, Mapping[str, Any]]


def table(about: Mapping[str, Any], rows: Rows, refused: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """The value of the page's table. rows: method -> Measurement.row; refused: method -> why it could not be measured."""
    return {"about": dict(about), "rows": dict(rows), "refused": dict(refused), "advice": advice(rows), **more}


def advice(rows: Rows) -> dict[str, Any]:
    """"best": the fastest lossless method here, None while there is none; "speedup": its; "plain": whether nothing beats plain
    decoding; "cases": case -> [the fastest of its methods, its speed-up], only where one of them was measured."""
    speeds = {name: row["speedup"] for name, row in rows.items() if name != "plain" and row["lossless"]}
    best = max(speeds, key=speeds.__getitem__, default=None)
    cases = {}
    for case, names in CASES.items():
        fitting = [name for name in names if name in speeds and (case != UNTRAINED or not rows[name]["extra_parameters"])]
        if fitting:
            chosen = max(fitting, key=speeds.__getitem__)
            cases[case] = [chosen, speeds[chosen]]
    beaten = best is not None and speeds[best] < FASTER
    return {"best": None if beaten else best, "speedup": speeds.get(best), "plain": beaten, "cases": cases}
