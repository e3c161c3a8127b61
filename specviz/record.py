"""record(): tensors of one round -> Iteration. The only bridge from torch to the trace."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.trace import Iteration, Node, Row
from specviz.trace import Test as TestRecord
from specviz.tree import Draft
from specviz.verify import Rows, Verdict


def record(
    index: int,
    start: float,
    root: int,
    draft: Draft,
    p: Rows,  # float32[N + 1, V]
    scores: Scores,
    verdict: Verdict,
    block: Sequence[int],  # the path's tokens and the verdict's own
    kept: int,  # how many of them were emitted
    seconds: dict[str, float],
    stop: str,
    capture: int,
    target,
    sampling: Sampling,
) -> Iteration:
    """capture: entries a row; 0 keeps only what the decision itself used (tokens, p, q, u), at next to no cost.

    A note may list under "named" the ids of tokens that it alone mentions: their texts are kept, the list is not.
    """
    likely = _likely(draft, scores.logits, verdict, capture) if capture else {}
    nodes = _nodes(draft, p, scores.logits, verdict, likely)
    rows = _rows(draft, p, scores.logits, verdict, capture, sampling.reads_history, likely) if capture else []
    named = {root, *block, *draft.note.get("named", ()), *(node.token for node in nodes), *(token for row in rows for token in row.ids)}
    note = {name: value for name, value in draft.note.items() if name != "named"}
    return Iteration(
        index=index,
        start=start,
        root=root,
        nodes=nodes,
        rows=rows,
        tests=[TestRecord(t.node, t.p, t.q, t.u, t.threshold, t.accepted) for t in verdict.tests],
        path=list(verdict.path),
        token=verdict.token,
        kind=verdict.kind,
        draw=verdict.draw,
        emitted=list(block[:kept]),
        discarded=list(block[kept:]),
        seconds=seconds,
        passes=draft.passes,
        reason=draft.reason,
        note={**note, **({"fell_back": True} if verdict.fell_back else {})},
        stop=stop,
        texts={str(token): target.token_bytes(token).hex() for token in sorted(named)},
    )


Likely = dict[int, tuple[list[int], list[float], float]]  # row -> its likeliest tokens and their logits, best first, and the log of Z


def _likely(draft: Draft, logits: torch.Tensor, verdict: Verdict, capture: int) -> Likely:
    """Of the rows that had a say: those with candidates, and the one that the last token came from.

    The law after any other node (a leaf that was not accepted, a probe) decided nothing, and in a tree they are the many.
    """
    end = verdict.path[-1] if verdict.path else -1
    rows = sorted({-1, end, *(parent for node, parent in enumerate(draft.parents) if not draft.is_probe(node))})
    wanted = logits if len(rows) == len(logits) else logits[[after + 1 for after in rows]]
    best = wanted.topk(min(capture, logits.shape[-1]), sorted=True)
    total = wanted.float().logsumexp(-1)
    return {row + 1: found for row, *found in zip(rows, best.indices.tolist(), best.values.tolist(), total.tolist(), strict=True)}


def _nodes(draft: Draft, p: Rows, logits: torch.Tensor, verdict: Verdict, likely: Likely) -> list[Node]:
    """p and rank where the law after the parent is recorded. Without `likely` no rank, and p where the rule had that law before it."""
    if not len(draft):
        return []
    tokens = draft.tokens.to(logits.device)
    after = torch.tensor([parent + 1 for parent in draft.parents], device=logits.device)
    families: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.parents):
        families.setdefault(parent, []).append(node)
    target: list[float | None] = [None] * len(draft)
    for parent in families.keys() & ({row - 1 for row in likely} or {-1, *verdict.path}):
        for node, mass in zip(families[parent], p[parent + 1][tokens[families[parent]]].tolist(), strict=True):
            target[node] = mass
    drawn = draft.q[torch.arange(len(draft)), draft.tokens].tolist() if draft.q is not None else [None] * len(draft)
    rank = [-1] * len(draft)
    if likely:
        own = zip(after.tolist(), logits[after, tokens].tolist(), strict=True)
        rank = [_rank(logits[row], value, likely[row]) if row in likely else -1 for row, value in own]
    return [
        Node(token, parent, depth, target[i], drawn[i], rank[i], draft.is_probe(i))
        for i, (token, parent, depth) in enumerate(zip(draft.tokens.tolist(), draft.parents, draft.depth, strict=True))
    ]


def _rank(row: torch.Tensor, value: float, best: tuple[list[int], list[float], float]) -> int:
    """How many logits are larger. Most drafted tokens are among the best, which are known without another search."""
    if value >= best[1][-1]:
        return sum(one > value for one in best[1])
    return int((row > value).sum())


def _rows(draft: Draft, p: Rows, logits: torch.Tensor, verdict: Verdict, capture: int, reordered: bool, likely: Likely) -> list[Row]:
    """One table a row, on the union of what is likely to either side and what was drafted or drawn.

    reordered: p may rank tokens otherwise than the logits do, which of all settings only a penalty does; else the
    target's likely tokens keep their order under every filter, so one search serves p and the model's own law.
    """
    candidates: dict[int, list[int]] = {}  # row -> its children, in the order in which they are tried
    for node, parent in enumerate(draft.parents):
        if not draft.is_probe(node):
            candidates.setdefault(parent + 1, []).append(node)
    last = verdict.path[-1] if verdict.path else -1
    rows = []
    for row, (ids, _, total) in likely.items():
        law = p[row]
        children = candidates.get(row, [])
        tried = [int(draft.tokens[i]) for i in children]
        q = draft.q[children[0]] if draft.q is not None and children else None
        ids = [*(_most(law, capture) if reordered else ()), *ids, *(() if q is None else _most(q, capture)), *tried]
        ids = list(dict.fromkeys([*ids, verdict.token] if row - 1 == last else ids))
        at = torch.tensor(ids, device=law.device)
        residual = verdict.residual if row - 1 == last else None
        overlap = None
        if q is not None:
            overlap = min(1.0, float(torch.minimum(law, q.to(law.device)).sum()))
        elif children:
            overlap = min(1.0, float(law[list(set(tried))].sum()))
        rows.append(
            Row(
                after=row - 1,
                ids=ids,
                p=law[at].tolist(),
                model=(logits[row, at].float() - total).exp().tolist(),
                q=None if q is None else q[at.to(q.device)].tolist(),
                residual=None if residual is None else residual[at.to(residual.device)].tolist(),
                overlap=overlap,
            )
        )
    return rows


def _most(law: torch.Tensor, count: int) -> list[int]:
    """The tokens that have most of a law's mass, none of them without any."""
    if int(law.count_nonzero()) == 1:  # one-hot, as at temperature 0
        return [int(law.argmax())]
    most = law.topk(min(count, len(law)))
    return [token for token, mass in zip(most.indices.tolist(), most.values.tolist(), strict=True) if mass > 0]
