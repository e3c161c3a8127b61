"""Long prompts out of short conversations: their answers as passages to summarise, or to find an answer in.

A drafter that was trained on short chats alone is believed least where contexts are long. Whose words the passages are does
not matter: what is learned from is how the target answers them, which `collect` lets it do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from specviz.train.conversations import Conversation
from specviz.train.texts import opening

SUMMARISE = (
    "Summarize the following text.\n\n{passages}",
    "{passages}\n\nSummarize the text above in a few sentences.",
    "Summarize: {passages}",
    "Give a short summary of this article:\n{passages}",
    "What are the main points of the text below?\n\n{passages}",
)
ASK = (
    "{passages}\n{question}",
    "Answer the question from the passages.\n\n{passages}\n\nQuestion: {question}",
    "Read the documents and answer.\n{passages}\nQ: {question}",
)
QUESTION = 96  # tokens of a question at most


def long_prompts(
    conversations: Sequence[Conversation], tokenizer: Any, count: int, shortest: int, longest: int, seed: int
) -> Iterator[str]:
    """`count` prompts with `shortest` to `longest` tokens of passages, every other one with the question of one of them.

    Raises ValueError where no conversation has both a question and an answer.
    """
    rng = np.random.default_rng(seed)
    usable = [c for c in conversations if 0 < c.answer < len(c.ids)]
    if not usable:
        raise ValueError("There is no conversation with a question and an answer to make long prompts of.")
    order, at = rng.permutation(len(usable)), 0
    before, after = template(tokenizer)
    for number in range(count):
        room, chosen, length = int(rng.integers(shortest, longest + 1)), [], 0
        while length < room:
            chosen.append(usable[order[at % len(order)]])
            at, length = at + 1, length + len(chosen[-1].ids) - chosen[-1].answer
        passages = text(tokenizer, np.concatenate([c.ids[c.answer :] for c in chosen])[:room])
        if number % 2:
            asked = chosen[rng.integers(len(chosen))]
            # what was told without a template is a question as it stands
            said = asked.ids[before : max(before, asked.answer - after)]
            question = text(tokenizer, (said if len(said) else asked.ids[: asked.answer])[:QUESTION])
            yield ASK[rng.integers(len(ASK))].format(passages=passages, question=question)
        else:
            yield SUMMARISE[rng.integers(len(SUMMARISE))].format(passages=passages)


def template(tokenizer: Any) -> tuple[int, int]:
    """How many ids of a prompt stand before and after what the user said."""
    one, other = opening("A", tokenizer), opening("B", tokenizer)
    before, after = zip(one, other, strict=False), zip(reversed(one), reversed(other), strict=False)
    return tuple(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) for pairs in (before, after))


def text(tokenizer: Any, ids: np.ndarray) -> str:
    return tokenizer.decode(ids.tolist(), skip_special_tokens=True).strip()
