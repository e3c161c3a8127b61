"""Small traces made by hand. A token's id is its own name here; its text is `t<id> ` unless bytes are given."""

from __future__ import annotations

from specviz import trace as tr

SECONDS = {"draft": 0.004, "target": 0.010, "verify": 0.001, "commit": 0.001, "record": 0.0005}


def header(**changes) -> tr.Header:
    facts = dict(
        target="toy", method="draft_model", lossless=True, knobs={"gamma": 4}, rule="token", sampling={"temperature": 0.0, "seed": 7},
        prompt="hi", prompt_ids=[1], max_new=64, stop_strings=[], stop_ids=[2], context=512, dtype="float32", device="cpu", capture=4,
        drafter="toy-draft", texts={"1": "6869"},
    )  # fmt: skip
    return tr.Header(**{**facts, **changes})


def texts_of(ids) -> dict[str, str]:
    return {str(i): f"t{i} ".encode().hex() for i in ids}


def chain(index, root, drafted, accepted, token, *, keep=None, stop="", start=None, seconds=None, p=0.8, q=0.8, texts=None) -> tr.Iteration:
    """A round of the token rule on a chain: the first `accepted` of `drafted` pass. `keep`: tokens that a stop leaves."""
    nodes = [tr.Node(t, i - 1, i + 1, p, q, 0) for i, t in enumerate(drafted)]
    tests = [tr.Test(i, p, q, 0.3 * min(1.0, p / q), min(1.0, p / q), True) for i in range(accepted)]
    recovered = accepted < len(drafted)
    if recovered:
        nodes[accepted] = tr.Node(drafted[accepted], accepted - 1, accepted + 1, 0.1, q, 3)
        tests.append(tr.Test(accepted, 0.1, q, 0.9, 0.1 / q, False))
    made = [*drafted[:accepted], token]
    keep = len(made) if keep is None else keep
    rows = [tr.Row(accepted - 1, [token, token + 1], [0.7, 0.2], [0.6, 0.3], [0.4, 0.5], [1.0, 0.0] if recovered else None, 0.6)]
    return tr.Iteration(
        index=index, start=0.0165 * index if start is None else start, root=root, nodes=nodes, rows=rows, tests=tests,
        path=list(range(accepted)), token=token, kind="recovered" if recovered else "bonus", draw=0.25, emitted=made[:keep],
        discarded=made[keep:], seconds=dict(SECONDS if seconds is None else seconds), passes=len(drafted), stop=stop,
        texts=texts_of([*drafted, token, token + 1]) if texts is None else texts,
    )  # fmt: skip


def run(*accepted: int, drafted: int = 4, keep: int | None = None, stop: str = "limit", plain: bool = False, **changes) -> tr.Trace:
    """One round per number of `accepted`; the last one keeps `keep` tokens and carries `stop`. Ids count up from 10."""
    iterations, root, free = [], 1, 10
    for index, count in enumerate(accepted):
        ids = list(range(free, free + (0 if plain else drafted)))
        last = index == len(accepted) - 1
        token = free + drafted
        it = chain(index, root, ids, count, token, keep=keep if last else None, stop=stop if last else "")
        iterations.append(it)
        root, free = it.emitted[-1], free + drafted + 1
    return tr.Trace(header(**({"method": "plain", "drafter": "", "knobs": {}} if plain else {}) | changes), iterations)


def f5(order=(4, 0, 2, 1)) -> tr.Trace:
    """Fixture F5: 16 drafted, 10 examined, 7 accepted, 11 emitted."""
    return run(*order)


def tree() -> tr.Trace:
    """Two levels: siblings 10 (rejected) and 11 (accepted), then 12 after 10 (never reached) and 13 after 11 (rejected), a probe 14."""
    nodes = [
        tr.Node(10, -1, 1, 0.2, None, 1), tr.Node(11, -1, 1, 0.5, None, 0), tr.Node(12, 0, 2, 0.3, None, 1),
        tr.Node(13, 1, 2, 0.1, None, 4), tr.Node(14, -1, 1, 0.0, None, 9, probe=True),
    ]  # fmt: skip
    tests = [tr.Test(0, 0.2, 1.0, 0.6, 0.2, False), tr.Test(1, 0.625, 1.0, 0.1, 0.625, True), tr.Test(3, 0.1, 1.0, 0.5, 0.1, False)]
    it = tr.Iteration(
        0, 0.0, 1, nodes, [], tests, [1], 20, "recovered", 0.5, [11, 20], [], dict(SECONDS), 2, stop="limit",
        texts=texts_of([10, 11, 12, 13, 14, 20]),
    )  # fmt: skip
    return tr.Trace(header(), [it])
