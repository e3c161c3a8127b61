"""Conversations as flat arrays: what every trainer reads.

A file is an .npz with `ids` (all conversations end to end), `starts` int64[n + 1] and `answers` int64[n] (where each answer
begins, an absolute offset). Positions from `answers[i] - 1` to `starts[i + 1] - 2` predict the answer of conversation i.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Conversation:
    ids: np.ndarray  # int64[L]
    answer: int  # offset in ids of the first answer token

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple(int(token) for token in self.ids[: self.answer])


def read(path: Path) -> list[Conversation]:
    """Raises ValueError where the file does not hold the three arrays."""
    with np.load(path, allow_pickle=False) as file:
        missing = {"ids", "starts", "answers"} - set(file.files)
        if missing:
            raise ValueError(f"{path.name} is not a conversation file: it lacks {', '.join(sorted(missing))}.")
        ids, starts, answers = file["ids"].astype(np.int64), file["starts"], file["answers"]
    return [Conversation(ids[start:end], int(answer - start)) for start, end, answer in zip(starts[:-1], starts[1:], answers, strict=True)]


def write(path: Path, conversations: Sequence[Conversation]) -> None:
    lengths = [len(c.ids) for c in conversations]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    answers = starts[:-1] + [c.answer for c in conversations]
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, ids=np.concatenate([c.ids for c in conversations]).astype(np.int32), starts=starts, answers=answers)
    partial.rename(path)


def held_out(conversation: Conversation, one_in: int = 50) -> bool:
    """Split by prompt, not by conversation: several answers to one prompt must stay on the same side."""
    digest = hashlib.sha256(np.asarray(conversation.prompt, dtype=np.int64).tobytes()).digest()
    return digest[0] * 256 + digest[1] < 65536 // one_in


def unique_prompts(conversations: Iterable[Conversation]) -> list[tuple[int, ...]]:
    return sorted({c.prompt for c in conversations}, key=lambda prompt: (len(prompt), prompt))


def by_length(conversations: Sequence[Conversation], tokens: int, seed: int) -> list[list[int]]:
    """Batches of indices of about equal length, at most `tokens` padded tokens each, in an order shuffled by `seed`."""
    rng = np.random.default_rng(seed)
    # a little noise on the sort key changes who shares a batch from epoch to epoch
    keys = np.array([len(c.ids) for c in conversations]) * rng.uniform(0.95, 1.05, len(conversations))
    batches, current, longest = [], [], 0
    for index in np.argsort(keys, kind="stable"):
        longest_next = max(longest, len(conversations[index].ids))
        if current and longest_next * (len(current) + 1) > tokens:
            batches.append(current)
            current, longest_next = [], len(conversations[index].ids)
        current.append(int(index))
        longest = longest_next
    if current:
        batches.append(current)
    return [batches[i] for i in rng.permutation(len(batches))]
