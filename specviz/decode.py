"""decode(): the one loop. Speculative and plain decoding are the same code; plain proposes nothing."""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version

import torch

from specviz.drafters import Drafter, State, knob_values
from specviz.laws import Laws
from specviz.record import record
from specviz.sampling import Sampling
from specviz.trace import Header, Iteration
from specviz.verify import LOSSLESS, RULES, Coins, SeededCoins

MAX_NEW = 100_000
MAX_PROMPT_CHARS = 400_000


class RunError(ValueError):
    """Why a run cannot start or cannot go on: one sentence for the user.

    key: where a page has words of its own for it, in several languages, which `facts` complete.
    """

    def __init__(self, sentence: str, key: str = "", **facts: str | int):
        super().__init__(sentence)
        self.key, self.facts = key, facts


@dataclass(frozen=True)
class Limits:
    """When a run ends besides the target's own end-of-text ids and its context. stop: strings that end it where they are complete."""

    max_new: int = 64
    stop: tuple[str, ...] = ()

    def __post_init__(self):
        if isinstance(self.max_new, bool) or not isinstance(self.max_new, int) or not 1 <= self.max_new <= MAX_NEW:
            raise RunError(f"The limit of new tokens must be a whole number from 1 to {MAX_NEW}, not {str(self.max_new)[:20]}.")
        if len(self.stop) > 16 or any(not is_text(s) or not 1 <= len(s) <= 200 for s in self.stop):
            raise RunError("Give at most 16 stop strings of 1 to 200 characters.")


def is_text(value: object) -> bool:
    """Whether a tokenizer and a file can hold it. A lone surrogate, as a terminal makes of stray bytes, no encoding can."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


class Clock:
    """Seconds between marks, read only when the device has finished what was asked of it."""

    def __init__(self, device: str):
        # without its name, CUDA would wait for the first device whichever one computes
        waits = {"cuda": lambda: torch.cuda.synchronize(device), "mps": torch.mps.synchronize}
        self.wait = waits.get(device.split(":")[0], lambda: None)
        self.lap()

    def lap(self) -> float:
        self.wait()
        now = time.perf_counter()
        elapsed, self.last = now - getattr(self, "last", now), now
        return elapsed


@torch.inference_mode()
def decode(
    target,
    drafter: Drafter,
    prompt: str,
    sampling: Sampling,
    limits: Limits,
    *,
    rule: str = "token",
    capture: int = 8,
    raw: bool = False,
    prompt_ids: Sequence[int] | None = None,
    coins: Coins | None = None,
    halted: Callable[[], bool] = lambda: False,
) -> Iterator[Header | Iteration]:
    """Yields the Header before any work, then one Iteration a round; the last one says why it stopped.

    capture: entries kept of each law (0: measure only). prompt_ids: instead of encoding `prompt`. coins: all randomness
    of the run; by default seeded by sampling.seed. halted: asked once a round; true ends the run with stop "stopped",
    or without a round where the prompt was still being read.
    Raises RunError before any work for what cannot be run, and in the middle where a model gives no usable numbers.
    """
    ids = checked_prompt(target, prompt, raw, prompt_ids)
    if rule not in RULES:
        raise RunError(f"The acceptance rule must be one of {', '.join(RULES)}, not {rule[:20]!r}.")
    if rule == "block" and drafter.shape == "tree":
        sentence = f"Block verification needs a chain, and {drafter.name} proposes trees; choose the token rule for it."
        raise RunError(sentence, "block", method=drafter.name)
    verify, coins = RULES[rule], coins or SeededCoins(sampling.seed)
    yield header_of(target, drafter, prompt, ids, sampling, limits, rule, capture)

    clock = Clock(target.device)
    emitted = 0
    state = State(ids, len(ids), room(target, ids, limits, emitted), sampling, coins, target.stop_ids, target.vocab)
    capacity = min(target.context, len(ids) + limits.max_new) + 64
    session = target.session(capacity, drafter.taps(target.config))
    taps = {tap: Rows(known, capacity) for tap, known in session.prefill(ids, halted).items()}
    state.hidden = {tap: rows.known for tap, rows in taps.items()}
    if halted():
        return
    drafter.begin(state)
    seconds = {"prefill": clock.lap()}
    stops, start, index, stop = Stops(target, limits), 0.0, 0, ""

    while not stop:
        root = state.ids[-1]
        clock.lap()
        # 1 draft
        try:
            draft = drafter.propose(state)
        except FloatingPointError as error:
            raise _no_law(drafter.source or drafter.name, index, error) from None
        seconds["draft"] = clock.lap()
        # 2 score: one target pass over the root and every drafted token
        scores = session.score(root, draft)
        seconds["target"] = clock.lap()
        # 3 verify
        try:
            p = Laws(sampling, draft, scores.logits, torch.tensor(state.ids) if sampling.reads_history else None)
            verdict = verify(draft, p, coins)
        except FloatingPointError as error:
            raise _no_law(target.name, index, error) from None
        except ValueError as error:  # the rule cannot judge such a draft
            raise RunError(str(error)) from None
        block = [*draft.tokens[list(verdict.path)].tolist(), verdict.token]
        kept, stop = stops.cut(block, emitted, len(state.ids))
        stop = stop or ("stopped" if halted() else "")
        seconds["verify"] = clock.lap()
        # 4 commit: keep the accepted rows, drop the rest
        session.commit(verdict.path)
        emitted += kept
        state.ids += block[:kept]
        state.new = kept
        rows = [0, *(node + 1 for node in verdict.path)]
        state.hidden = {tap: kept_rows.append(scores.hidden[tap][rows]) for tap, kept_rows in taps.items()}
        state.room = room(target, state.ids, limits, emitted)
        seconds["commit"] = clock.lap()
        # 5 tell the drafter
        drafter.accept(state, verdict, scores)
        seconds["draft"] += clock.lap()
        # 6 record; its own time is the last entry of the same dictionary
        try:
            iteration = record(index, start, root, draft, p, scores, verdict, block, kept, seconds, stop, capture, target, sampling)
        except FloatingPointError as error:  # in a row that no decision needed
            raise _no_law(target.name, index, error) from None
        seconds["record"] = clock.lap()
        start, index, seconds = start + iteration.time, index + 1, {}
        yield iteration


class Rows:
    """float[L, H] that grows at its end, in a buffer made once."""

    def __init__(self, known: torch.Tensor, capacity: int):
        self.buffer = known.new_empty(max(capacity, len(known)), known.shape[-1])
        self.length = 0
        self.append(known)

    @property
    def known(self) -> torch.Tensor:
        return self.buffer[: self.length]

    def append(self, rows: torch.Tensor) -> torch.Tensor:
        end = self.length + len(rows)
        if end > len(self.buffer):
            self.buffer = torch.cat([self.buffer, torch.empty_like(self.buffer), torch.empty_like(rows)])
        self.buffer[self.length : end] = rows
        self.length = end
        return self.known


def room(target, ids: Sequence[int], limits: Limits, emitted: int) -> int:
    """How deep a draft may be: one token of every round is the target's, and every node needs a position."""
    return max(0, min(limits.max_new - emitted - 1, target.context - len(ids)))


class Stops:
    """Where plain decoding would stop, found inside a block."""

    def __init__(self, target, limits: Limits):
        self.target, self.limits = target, limits
        self.strings = [s.encode() for s in limits.stop]
        self.tail = b""

    def cut(self, block: Sequence[int], emitted: int, length: int) -> tuple[int, str]:
        """(how many tokens of the block are kept, why it ends there or "")."""
        for i, token in enumerate(block, 1):
            if token in self.target.stop_ids:
                return i, "end_of_text"
            if self.strings:
                new = self.target.token_bytes(token)
                self.tail += new
                if any(s in self.tail for s in self.strings):
                    return i, "stop_string"
                self.tail = self.tail[-max(map(len, self.strings)) + 1 :] if max(map(len, self.strings)) > 1 else b""
            if emitted + i >= self.limits.max_new:
                return i, "limit"
            if length + i > self.target.context:
                return i, "context"
        return len(block), ""


def checked_prompt(target, prompt: str, raw: bool, prompt_ids: Sequence[int] | None) -> list[int]:
    if not is_text(prompt) or len(prompt) > MAX_PROMPT_CHARS:
        raise RunError(f"The prompt must be text of at most {MAX_PROMPT_CHARS} characters.")
    if prompt_ids is None:
        prompt_ids = target.encode(prompt, raw)
    ids = [int(token) for token in prompt_ids]
    if not ids:
        sentence = f"The prompt is empty and {target.name} has no start token; write at least one character."
        raise RunError(sentence, "empty", target=target.name)
    if any(not 0 <= token < target.vocab for token in ids):
        raise RunError(f"The prompt holds a token id outside the vocabulary of {target.name} (0 to {target.vocab - 1}).")
    if len(ids) > target.context:
        sentence = f"The prompt has {len(ids)} tokens, but {target.name} holds {target.context}; shorten it."
        raise RunError(sentence, "long", count=len(ids), target=target.name, most=target.context)
    return ids


def _no_law(name: str, index: int, error: Exception) -> RunError:
    return RunError(f"{name} gave no usable probabilities in iteration {index}: {error}.", "numbers", who=name, n=index, why=str(error))


def header_of(target, drafter, prompt, ids, sampling, limits, rule, capture) -> Header:
    return Header(
        target=target.name,
        method=drafter.name,
        lossless=drafter.lossless and (rule in LOSSLESS or drafter.shape == "none"),
        knobs=knob_values(drafter),
        rule=rule,
        sampling=asdict(sampling),
        prompt=prompt,
        prompt_ids=ids.copy(),
        max_new=limits.max_new,
        stop_strings=list(limits.stop),
        stop_ids=list(target.stop_ids),
        context=target.context,
        dtype=target.dtype,
        device=target.device,
        capture=capture,
        drafter=drafter.source,
        versions={**versions(), "kernels": target.kernels},
        texts={str(token): target.token_bytes(token).hex() for token in sorted(set(ids))},
    )


@functools.cache
def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("torch", "transformers")}}
