"""What a process has loaded and need not load again."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class Latest:
    """Values by their keys, the longest unused dropped first. One load at a time: two would fight for memory."""

    def __init__(self, most: int):
        self.most, self.lock, self.values = most, threading.RLock(), OrderedDict()

    def get(self, key: Hashable, load: Callable[[], Any]) -> Any:
        with self.lock:
            found = self.values.get(key) or load()
            self.values[key] = found
            self.values.move_to_end(key)
            while len(self.values) > self.most:
                self.values.popitem(last=False)
        return found


class Beside:
    """What belongs to an object, kept as long as the object is. No value may refer to its object, which would then never go."""

    def __init__(self):
        self.lock, self.values = threading.RLock(), weakref.WeakKeyDictionary()

    def get(self, owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        with self.lock:
            kept = self.values.setdefault(owner, {})
            if key not in kept:
                kept[key] = make()
            return kept[key]
