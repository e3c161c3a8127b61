"""Prompts that show something on a small model. Titles are in the tables of strings, as page.ex.<name>."""

from __future__ import annotations

from typing import Any

_NEWS = (
    "The library of Alder Street opened in 1911. It burned down in 1934 and was rebuilt in 1936 with money given by the town. "
    "Today the library of Alder Street holds 40,000 books and is open on six days a week."
)

# Every entry sets what it names and leaves the other controls alone.
EXAMPLES: dict[str, dict[str, Any]] = {
    "story": {"prompt": "Tell me a short story about a fox who learns to swim.", "template": "chat"},
    "copy": {
        "prompt": "Repeat this text twice, word for word:\n\nred fish, blue fish, one fish, two fish, old fish, new fish.",
        "template": "chat",
    },
    "loop": {"prompt": "red fish blue fish red fish blue fish red fish", "template": "raw", "max_new": 48},
    "code": {"prompt": "Write a Python function that returns the sum of the squares of a list of numbers.", "template": "chat"},
    "complete": {"prompt": "def fibonacci(n):\n    ", "template": "raw", "max_new": 96},
    "json": {"prompt": 'Write a JSON list of three people, each with the keys "name", "age" and "city".', "template": "chat"},
    "maths": {"prompt": "A train travels 60 km in one hour. How far does it travel in 3 hours? Explain each step.", "template": "chat"},
    "table": {"prompt": "7 x 1 = 7\n7 x 2 = 14\n7 x 3 = 21\n7 x 4 =", "template": "raw", "max_new": 48},
    "summary": {"prompt": f"Summarise in one sentence:\n\n{_NEWS}", "template": "chat"},
    "chinese": {"prompt": "请用中文介绍一下北京。", "template": "chat"},
    "list": {"prompt": "List the planets of the solar system in order, with one fact about each.", "template": "chat", "max_new": 160},
    "hot": {"prompt": "Once upon a", "template": "raw", "temperature": 1.3, "seed": "7", "max_new": 64},
    "literal": {"prompt": "Write an HTML page with a heading, a <b>bold</b> word and a price of $5.", "template": "chat"},
}
