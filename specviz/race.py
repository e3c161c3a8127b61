"""race(): several decode() lanes on one device, each on its own clock.

At each step the lane whose clock is behind computes one iteration. Only one lane computes at a time, so none slows
another, every clock is true, and what has been yielded at any moment is the state of a real race at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specviz.trace import Header, Iteration

MAX_LANES = 4


def race(lanes: Mapping[str, Iterator[Header | Iteration]]) -> Iterator[tuple[str, Header | Iteration]]:
    """Yields (lane, record). All headers come first, so bad input to any lane is raised before any lane works."""
    if not 1 <= len(lanes) <= MAX_LANES:
        raise ValueError(f"A race has 1 to {MAX_LANES} lanes, not {len(lanes)}.")
    try:
        for name, lane in lanes.items():
            yield name, next(lane)
        clocks = dict.fromkeys(lanes, 0.0)
        while clocks:
            name = min(clocks, key=clocks.__getitem__)
            iteration = next(lanes[name], None)
            if iteration is None:
                del clocks[name]
                continue
            clocks[name] = iteration.start + iteration.time
            yield name, iteration
    finally:
        for lane in lanes.values():
            lane.close()
