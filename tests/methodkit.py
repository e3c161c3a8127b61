"""What the tests of every method share: small settings of its knobs, a look at all it does, and passes that are not repeated."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable

import torch

from specviz.drafters import METHODS, Knob, knob_values, knobs
from specviz.session import Session, Target
from specviz.trace import Iteration
from tests.tinymodels import Watched, prompt_ids


def prompt(length: int, vocab: int = 12) -> list[int]:
    return [token % vocab for token in prompt_ids(length)]


def built(name: str, target, **chosen):
    """The method's small one for `target`, with knobs as chosen."""
    return dataclasses.replace(METHODS[name].tiny(target), **chosen)


def trimmed(drafter, target, d2t: torch.Tensor):
    """The same drafter whose head drafts only the tokens of `d2t`; None where it has no head to trim."""
    heads = {f.name: head for f in dataclasses.fields(drafter) if hasattr(head := getattr(drafter, f.name), "d2t")}
    made = {name: type(head).tiny(target, d2t=d2t) for name, head in heads.items() if hasattr(type(head), "tiny")}
    return dataclasses.replace(drafter, **made) if made else None


def at_most(knob: Knob, value, limit: int):
    return min(value or limit, max(limit, int(knob.min))) if knob.kind == "int" else value


def small(name: str, target, limit: int = 3) -> dict:
    """Whole numbers no larger than `limit`, which also stands for the 0 of what is automatic; all else as it comes."""
    values = knob_values(METHODS[name].tiny(target))
    return {knob.name: at_most(knob, values[knob.name], limit) for knob in knobs(METHODS[name])}


def variations(name: str, target, limit: int = 3) -> dict[str, dict]:
    """The small setting under every choice, and from each of them every number in turn at its ends (whole ones: the lower end)."""
    base = small(name, target, limit)
    switches = {k.name: k.choices or (False, True) for k in knobs(METHODS[name]) if k.kind in ("choice", "bool")}
    found = []
    for values in itertools.product(*switches.values()):
        start = {**base, **dict(zip(switches, values, strict=True))}
        found.append(start)
        for knob in knobs(METHODS[name]):
            if knob.kind == "int":
                found += [{**start, knob.name: v} for v in range(int(knob.min), min(int(knob.min) + 2, limit + 1) + 1) if v <= knob.max]
            elif knob.kind == "float":
                found += [{**start, knob.name: v} for v in (knob.min, knob.max)]
    return {", ".join(f"{k}={v}" for k, v in values.items() if v != base[k]) or "small": values for values in found}


def sizes(name: str, target) -> dict[str, dict]:
    """Drafts from the smallest to large ones."""
    least = {knob.name: int(knob.min) for knob in knobs(METHODS[name]) if knob.kind == "int"}
    large = {knob.name: int(min(knob.max, max(8, 2 * knob.default))) for knob in knobs(METHODS[name]) if knob.kind == "int"}
    chosen = {"least": least, "small": small(name, target, 4), "as it comes": {}, "large": large}
    return {label: values for i, (label, values) in enumerate(chosen.items()) if values not in list(chosen.values())[:i]}


def obeys(draft, state) -> None:
    """What every draft must keep to."""
    tokens = draft.tokens.tolist()
    assert draft.tokens.dtype == torch.int64 and all(0 <= token < state.vocab for token in tokens)
    assert max(draft.depth, default=0) <= state.room, "deeper than limit and context allow"
    assert draft.passes >= 0 and json.dumps(draft.note) is not None
    assert not draft.probe or len(draft.probe) == len(draft)
    for node in (-1, *range(len(draft))):
        if draft.q is None:
            children = [tokens[child] for child in draft.children(node)]
            assert len(children) == len(set(children)), "a point mass that was rejected cannot be accepted later"
    for i, parent in enumerate(draft.parents):
        assert draft.is_probe(i) or not draft.is_probe(parent) or parent < 0, "a candidate after a probe is never reached"
    if draft.q is not None and tokens:
        assert draft.q.shape == (len(draft), state.vocab) and bool((draft.q >= 0).all())
        torch.testing.assert_close(draft.q.sum(-1), torch.ones(len(draft), dtype=draft.q.dtype), atol=1e-5, rtol=0)
        assert all(float(draft.q[i, token]) > 0 for i, token in enumerate(tokens)), "no law draws a token without mass"


def watched(drafter, taps: tuple[int, ...] = (), after: Callable = lambda state, draft, verdict, scores: None):
    """The same drafter: each draft is checked, `taps` more hidden states are kept, and `after` is called after each round."""
    own_taps, propose, accept = drafter.taps, drafter.propose, drafter.accept
    last = {}

    def look(state):
        ids = list(state.ids)
        draft = last["draft"] = propose(state)
        assert state.ids == ids, "the loop alone writes the state"
        obeys(draft, state)
        line = draft.is_chain and not any(draft.probe)
        assert drafter.shape == "tree" or (line and drafter.shape == "chain") or not len(draft), "by it block verification is refused"
        return draft

    def told(state, verdict, scores):
        accept(state, verdict, scores)
        after(state, last["draft"], verdict, scores)

    drafter.taps = lambda config: tuple(sorted({*own_taps(config), *taps}))
    drafter.propose, drafter.accept = look, told
    return drafter


def no_probe_counts(iterations: list[Iteration]) -> None:
    """Probes are neither accepted nor examined, and what is emitted is the path and the token drawn."""
    for it in iterations:
        touched = {*it.path, *(test.node for test in it.tests)}
        assert not any(it.nodes[node].probe for node in touched)
        assert [it.nodes[node].token for node in it.path] + [it.token] == it.emitted + it.discarded


def once(drafter):
    """The same drafter; passes of its draft model or head are made once each."""
    found = {}
    for f in dataclasses.fields(drafter):
        value = getattr(drafter, f.name)
        if type(value) is Target:
            found[f.name] = Once(value)
        elif hasattr(value, "step"):
            found[f.name] = OnceHead(value)
        elif type(value) is functools.partial:  # makes a drafter of its own
            found[f.name] = functools.partial(lambda make: once(make()), value)
    return dataclasses.replace(drafter, **found)


def content(*tensors: torch.Tensor | None) -> tuple:
    return tuple(None if t is None else (t.shape, t.numpy().tobytes()) for t in tensors)


class OnceHead:
    """A recurrent head that looks up a step already made of the same slots over a cache of the same content, bit for bit."""

    def __init__(self, head):
        self.head, self.known = head, {}

    def __getattr__(self, name):
        return getattr(self.head, name)

    def step(self, tokens, features, positions, seen, cache, past_seen=None, wanted=0):
        layer, start = cache.layer, cache.length
        past = (layer.keys[:, :, :start], layer.values[:, :, :start]) if start else ()
        key = (wanted, *content(tokens, features, positions, seen, past_seen, *past))
        if key in self.known:
            result, rows = self.known[key]
            layer.update(*rows)
        else:
            result = self.head.step(tokens, features, positions, seen, cache, past_seen=past_seen, wanted=wanted)
            rows = tuple(t[:, :, start : cache.length].clone() for t in (layer.keys, layer.values))
            self.known[key] = result, rows
        return tuple(t.clone() for t in result)


class OncePass(Session):
    """A session that looks up a pass already made of the same tokens over a cache of the same content, bit for bit."""

    known: dict

    def forward(self, tokens, parents, rows_wanted=0):
        past = [tensor[:, :, : self.length] for layer in self.layers if self.length for tensor in (layer.keys, layer.values)]
        key = (tuple(tokens), tuple(parents), rows_wanted, self.taps, *content(*past))
        if key not in self.known:
            start = self.length
            scores = super().forward(tokens, parents, rows_wanted)
            rows = [
                (layer.keys[:, :, start : self.length].clone(), layer.values[:, :, start : self.length].clone()) for layer in self.layers
            ]
            self.known[key] = scores, rows
            return scores
        self._past = self.length
        scores, rows = self.known[key]
        for layer, (keys, values) in zip(self.layers, rows, strict=True):
            layer.update(keys, values)
        return dataclasses.replace(scores, logits=scores.logits.clone())


class Once(Watched):
    """A target whose passes are made once each."""

    def __init__(self, target):
        super().__init__(target)
        self.known, self.parts = {}, {}
        self.config, self.vocab, self.context = target.config, target.vocab, target.context  # slow to ask a model for

    def shallow(self, keep):
        if tuple(keep) not in self.parts:
            self.parts[tuple(keep)] = Once(self.target.shallow(keep))
        return self.parts[tuple(keep)]

    def session(self, *args, **more):
        session = OncePass(self.target, *args, **more)
        session.known = self.known
        return session
