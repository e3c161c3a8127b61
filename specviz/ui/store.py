"""Whose run is whose. Runs are found by unguessable ids; a visitor's records leave with the visitor, or after `keep` seconds."""

from __future__ import annotations

import threading
import time

from specviz.trace import Trace
from specviz.ui.run import Run

OWN = 2  # records kept for one visitor: the one on screen, and the one that is about to replace it


class Store:
    def __init__(self, keep: float = 3600, most: int = 200):
        self.keep, self.most = keep, most
        self._lock = threading.Lock()
        self._fixed: dict[str, Run] = {}
        self._runs: dict[str, tuple[str | None, Run]] = {}  # run id -> (session, run), oldest first
        self._live: dict[str | None, Run] = {}  # session -> its latest run; clients without a session share one

    def fix(self, run: Run) -> None:
        """A record that belongs to the page itself and stays."""
        self._fixed[run.id] = run

    def begin(self, session: str | None, run: Run) -> None:
        """From now on this is the visitor's run; an earlier one that still computes is stopped."""
        with self._lock:
            if (earlier := self._live.get(session)) is not None:
                earlier.stop.set()
            self._live[session] = run
            self._runs[run.id] = (session, run)
            self._tidy(session)

    def live(self, session: str | None) -> Run | None:
        return self._live.get(session)

    def find(self, run_id: str) -> Run | None:
        found = self._fixed.get(run_id) or self._runs.get(run_id, (None, None))[1]
        if found is not None:
            found.touched = time.monotonic()
        return found

    def lookup(self, run_id: str, lane: str) -> Trace | None:
        run = self.find(run_id)
        return None if run is None else run.trace(lane)

    def leave(self, session: str | None) -> None:
        """The visitor closed the tab: stops the work and forgets the records."""
        with self._lock:
            if (run := self._live.pop(session, None)) is not None:
                run.stop.set()
            self._forget([key for key, (owner, _) in self._runs.items() if owner == session])

    def __len__(self) -> int:
        return len(self._fixed) + len(self._runs)

    def _tidy(self, session: str | None) -> None:
        now = time.monotonic()
        ended = [(key, owner, run) for key, (owner, run) in self._runs.items() if run.done.is_set()]
        # A refused run has nothing to show, so it must not push out the record that is still on screen.
        mine = [key for key, owner, run in ended if owner == session]
        empty = [key for key, owner, run in ended if owner == session and not run.headers]
        kept = [key for key in mine if key not in empty]
        stale = [key for key, _, run in ended if now - run.touched > self.keep]
        self._forget(
            {*empty, *kept[: max(0, len(kept) - OWN + 1)], *stale, *[key for key, _, _ in ended][: max(0, len(ended) - self.most)]}
        )

    def _forget(self, keys) -> None:
        for key in keys:
            owner, run = self._runs.pop(key)
            if self._live.get(owner) is run:
                del self._live[owner]
