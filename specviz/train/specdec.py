"""Train the acceptance head of SpecDec++ (Huang et al. 2024) on a frozen draft model.

At every answer position the draft draws a token from its own law, reads it, and the head learns, from the hidden state after
reading it, whether the target would accept it: probability min(1, p/q). Rejections weigh `mismatch` times as much as acceptances,
as in the paper, whose text is mixed with draft tokens; here each drawn token stands beside the text it follows, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from specviz.heads import files
from specviz.heads.specdec import Acceptance
from specviz.train import loop
from specviz.train.data import Batch, Data


@dataclass(frozen=True)
class SpecdecRecipe(loop.Recipe):
    blocks: int = 1
    mismatch: float = 6.0  # weight of a rejection
    greedy: float = 0.5  # share of positions where the draft's best token stands in for a drawn one


class SpecdecTask:
    kind = "specdec"

    def __init__(
        self, head: Acceptance, draft: nn.Module, d2t: torch.Tensor | None, output: torch.Tensor, recipe: SpecdecRecipe, last: int
    ):
        """draft: a causal model whose ids are the target's; its logits are over d2t where there is one."""
        self.module, self.draft, self.d2t, self.recipe, self.last = head, draft, d2t, recipe, last
        self.output = output.detach().to(torch.bfloat16)

    @torch.no_grad()
    def _examples(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(hidden float[M, h] after reading a drawn token, P(accepted) float[M])"""
        ids, (rows, slots) = batch.ids, batch.ids.shape
        decoder, head = self.draft.get_decoder(), self.draft.get_output_embeddings()
        q = head(decoder(ids).last_hidden_state[batch.answer]).float().softmax(-1)
        drawn = torch.multinomial(q, 1)[:, 0]
        best = torch.rand(len(q), device=ids.device) < self.recipe.greedy
        drawn = torch.where(best, q.argmax(-1), drawn)
        q_x = q.gather(1, drawn[:, None])[:, 0]
        token = drawn if self.d2t is None else self.d2t[drawn]
        p = (batch.hidden[self.last][batch.answer].to(torch.bfloat16) @ self.output.T).float().softmax(-1)
        p_x = p.gather(1, token[:, None])[:, 0]
        accepted = torch.where(best, (p.argmax(-1) == token).float(), (p_x / q_x).clamp(max=1.0))
        # the drawn tokens stand behind the text, each seeing what it follows and itself
        beside = torch.zeros_like(ids)
        beside[batch.answer] = token
        causal = torch.ones(slots, slots, dtype=torch.bool, device=ids.device).tril()
        eye = torch.eye(slots, dtype=torch.bool, device=ids.device)
        seen = torch.cat([torch.cat([causal, torch.zeros_like(eye)], 1), torch.cat([causal, eye], 1)])
        dtype = next(self.draft.parameters()).dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=ids.device).masked_fill_(~seen, torch.finfo(dtype).min)
        at = torch.arange(slots, device=ids.device)
        hidden = decoder(
            torch.cat([ids, beside], 1),
            position_ids=torch.cat([at, at + 1])[None].expand(rows, -1),
            attention_mask=mask[None, None].expand(rows, 1, -1, -1),
        ).last_hidden_state[:, slots:]
        return hidden[batch.answer], accepted

    def loss(self, batch: Batch) -> tuple[torch.Tensor, int]:
        hidden, accepted = self._examples(batch)
        logits = self.module.logits(hidden.float())
        both = [binary_cross_entropy_with_logits(logits, torch.full_like(logits, x), reduction="none") for x in (1.0, 0.0)]
        weight, against = accepted, self.recipe.mismatch * (1 - accepted)
        return (weight * both[0] + against * both[1]).sum() / (weight + against).sum(), len(logits)

    def measure(self, batch: Batch) -> dict[str, torch.Tensor]:
        """agree: how often "more likely accepted than not" was right; accepted: the rate itself."""
        hidden, accepted = self._examples(batch)
        says = self.module(hidden.float()) > 0.5
        right = torch.where(says, accepted, 1 - accepted).sum()
        return loop.stacked([{"agree": right, "accepted": accepted.sum(), "count": torch.tensor(float(len(says)))}])

    def state(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        self.module.load_state_dict(state)

    def write(self, facts: dict[str, Any], out: Path) -> None:
        files.write(out, self.module.state_dict(), {"blocks": len(self.module.blocks)} | facts)


def train(
    model: nn.Module,
    draft: nn.Module,
    d2t: torch.Tensor | None,
    data: Data,
    out: Path,
    recipe: SpecdecRecipe,
    own: int,
    commands: Sequence[str],
    on_step: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """draft: the frozen draft model, with stock modules; d2t: the target's ids of its rows, None where they are the same."""
    torch.manual_seed(recipe.seed)
    draft = draft.to(data.device).eval().requires_grad_(False)
    head = Acceptance(draft.config.hidden_size, recipe.blocks).to(data.device)
    d2t = None if d2t is None else d2t.to(data.device)
    task = SpecdecTask(head, draft, d2t, model.get_output_embeddings().weight, recipe, data.last)
    return loop.run(task, data, out, recipe, own, commands, on_step)
