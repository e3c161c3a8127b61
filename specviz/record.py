"""record(): tensors of one round -> Iteration. The only bridge from torch to the trace."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specviz.sampling import Sampling
from specviz.session import Scores
from specviz.trace import Iteration, Node, Row
from specviz.trace import Test as TestRecord
from specviz.tree import Draft
from specviz.verify import Verdict


def record(
    index: int,
    start: float,
    root: int,
    draft: Draft,
    p: torch.Tensor,  # float32[N + 1, V]
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
    """capture: entries a row; 0 keeps only what the decision itself used (tokens, p, q, u), at next to no cost."""
    nodes = _nodes(draft, p, scores.logits, ranks=capture > 0)
    rows = _rows(draft, p, scores.logits, verdict, capture, sampling.reads_history) if capture else []
    named = {root, *block, *(node.token for node in nodes), *(token for row in rows for token in row.ids)}
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
        note={**draft.note, **({"fell_back": True} if verdict.fell_back else {})},
        stop=stop,
        texts={str(token): target.token_bytes(token).hex() for token in sorted(named)},
    )


def _nodes(draft: Draft, p: torch.Tensor, logits: torch.Tensor, ranks: bool) -> list[Node]:
    if not len(draft):
        return []
    tokens = draft.tokens.to(p.device)
    after = torch.tensor([parent + 1 for parent in draft.parents], device=p.device)
    target = p[after, tokens].tolist()
    drawn = draft.q[torch.arange(len(draft)), draft.tokens].tolist() if draft.q is not None else [None] * len(draft)
    rank = [-1] * len(draft)
    if ranks:  # row by row: one gather of all rows would copy them
        rank = [int((logits[parent + 1] > logits[parent + 1, token]).sum()) for parent, token in zip(draft.parents, tokens, strict=True)]
    return [
        Node(token, parent, depth, target[i], drawn[i], rank[i], draft.is_probe(i))
        for i, (token, parent, depth) in enumerate(zip(draft.tokens.tolist(), draft.parents, draft.depth, strict=True))
    ]


def _rows(draft: Draft, p: torch.Tensor, logits: torch.Tensor, verdict: Verdict, capture: int, reordered: bool) -> list[Row]:
    """One table a row, on the union of what is likely to either side and what was drafted or drawn.

    reordered: p may rank tokens otherwise than the logits do, which of all settings only a penalty does.
    """
    count = len(draft) + 1
    first = {draft.parents[i]: i for i in reversed(range(len(draft)))}  # first child of each node
    # the target's likely tokens keep their order under every filter, so one search serves p and the model's own law
    likely = logits.topk(min(capture, logits.shape[-1]), sorted=True).indices.tolist()
    if reordered:
        likely = [ours + model for ours, model in zip(_most(p, capture), likely, strict=True)]
    model = logits.float().softmax(-1)
    drafted = _most(draft.q, capture) if draft.q is not None else []
    last = verdict.path[-1] if verdict.path else -1
    rows = []
    for row in range(count):
        after = row - 1
        child = first.get(after)
        has_q = draft.q is not None and child is not None
        ids = list(likely[row])
        ids += drafted[child] if has_q else []
        ids += [int(draft.tokens[i]) for i in draft.children(after)]
        ids += [verdict.token] if after == last else []
        ids = list(dict.fromkeys(ids))
        at = torch.tensor(ids, device=p.device)
        residual = verdict.residual if after == last else None
        q = draft.q[child] if has_q else None
        rows.append(
            Row(
                after=after,
                ids=ids,
                p=p[row, at].tolist(),
                model=model[row, at].tolist(),
                q=None if q is None else q[at.to(q.device)].tolist(),
                residual=None if residual is None else residual[at.to(residual.device)].tolist(),
                overlap=None if q is None else min(1.0, float(torch.minimum(p[row], q.to(p.device)).sum())),
            )
        )
    return rows


def _most(laws: torch.Tensor, count: int) -> list[list[int]]:
    """The tokens of each law that have most of its mass, none of them without any."""
    if int(laws.count_nonzero()) == len(laws):  # one-hot rows, as at temperature 0
        return laws.argmax(-1, keepdim=True).tolist()
    most = laws.topk(min(count, laws.shape[-1]))
    return [[t for t, mass in zip(*row, strict=True) if mass > 0] for row in zip(most.indices.tolist(), most.values.tolist(), strict=True)]
