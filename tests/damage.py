"""Ways to damage one line of a good trace (fixture F5): of its header, and of its first round, which accepts four of four."""

import copy


def put(*place):
    """Sets value at a path of keys: put("nodes", 0, "p", 2.0)."""
    *path, last, value = place

    def change(record):
        for key in path:
            record = record[key]
        record[last] = copy.deepcopy(value)

    return change


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


HEADER = {
    "target a number": put("target", 3),
    "lossless 1": put("lossless", 1),
    "lossless text": put("lossless", "true"),
    "version true": put("version", True),
    "version 1.0": put("version", 1.0),
    "prompt ids text": put("prompt_ids", "12"),
    "prompt id negative": put("prompt_ids", [-1]),
    "prompt id bool": put("prompt_ids", [True]),
    "prompt id fraction": put("prompt_ids", [1.5]),
    "prompt id 10^30": put("prompt_ids", [10**30]),
    "knobs a list": put("knobs", []),
    "knobs deep": put("knobs", "x", nested(50)),
    "knobs infinite": put("knobs", "gamma", float("inf")),
    "knobs huge": put("knobs", "gamma", 10**400),
    "sampling not a number": put("sampling", "temperature", float("nan")),
    "max_new negative": put("max_new", -1),
    "context null": put("context", None),
    "capture text": put("capture", "8"),
    "stop ids by the thousand": put("stop_ids", list(range(1001))),
    "stop strings of numbers": put("stop_strings", [1]),
    "texts odd hex": put("texts", "1", "abc"),
    "texts no hex": put("texts", "1", "zz"),
    "texts key no number": put("texts", "one", "61"),
    "texts key negative": put("texts", "-1", "61"),
    "texts key other digits": put("texts", "१", "61"),
    "texts key long": put("texts", "1" * 5000, "61"),
    "texts endless": put("texts", "1", "61" * 500_000),
    "prompt endless": put("prompt", "a" * 1_000_000),
    "prompt half a pair": put("prompt", "\ud83e"),
}

ITERATION = {
    "index from 1": put("index", 1),
    "index bool": put("index", False),
    "start negative": put("start", -0.5),
    "start infinite": put("start", float("inf")),
    "start 1e300": put("start", 1e299),
    "start a 400-digit number": put("start", 10**400),
    "start text": put("start", "0"),
    "root of another run": put("root", 99),
    "root negative": put("root", -1),
    "nodes an object": put("nodes", {}),
    "nodes null": put("nodes", None),
    "nodes without end": lambda it: it["nodes"].extend([it["nodes"][-1]] * 20_000),
    "row without end": lambda it: it["rows"][0].update({name: [0] * 20_000 for name in ("ids", "p", "model", "q", "residual")}),
    "node a number": put("nodes", 0, 7),
    "node token negative": put("nodes", 3, "token", -5),
    "node token bool": put("nodes", 3, "token", True),
    "node token huge": put("nodes", 3, "token", 2**40),
    "node parent itself": put("nodes", 0, "parent", 0),
    "node parent later": put("nodes", 0, "parent", 2),
    "node parent -2": put("nodes", 0, "parent", -2),
    "node depth wrong": put("nodes", 2, "depth", 5),
    "node depth 0": put("nodes", 0, "depth", 0),
    "node p 2": put("nodes", 0, "p", 2.0),
    "node p nan": put("nodes", 0, "p", float("nan")),
    "node q negative": put("nodes", 0, "q", -0.1),
    "node q text": put("nodes", 0, "q", "0.5"),
    "node rank -2": put("nodes", 0, "rank", -2),
    "node probe 0": put("nodes", 0, "probe", 0),
    "accepted node a probe": put("nodes", 0, "probe", True),
    "row after nothing": put("rows", 0, "after", 9),
    "row after -2": put("rows", 0, "after", -2),
    "row column short": put("rows", 0, "p", [0.5]),
    "row column long": put("rows", 0, "residual", [0.1, 0.1, 0.1]),
    "row model missing": lambda it: it["rows"][0].pop("model"),
    "row id twice": put("rows", 0, "ids", [14, 14]),
    "row id negative": put("rows", 0, "ids", [14, -1]),
    "row p above one": put("rows", 0, "p", [1.2, 0.0]),
    "row sums to 1.4": put("rows", 0, "p", [0.7, 0.7]),
    "row overlap 3": put("rows", 0, "overlap", 3),
    "two rows of one node": lambda it: it["rows"].append(copy.deepcopy(it["rows"][0])),
    "test of nothing": put("tests", 0, "node", 44),
    "test of -1": put("tests", 0, "node", -1),
    "test twice": put("tests", 1, "node", 0),
    "test u 1.5": put("tests", 0, "u", 1.5),
    "test u above its threshold": put("tests", 0, "u", 1.0),
    "test accepted denied": put("tests", 0, "accepted", False),
    "test accepted 1": put("tests", 0, "accepted", 1),
    "test threshold not p/q": lambda it: it["tests"][0].update(threshold=0.5),
    "tests out of order": lambda it: it["tests"].reverse(),
    "tests missing": put("tests", []),
    "tests one short": lambda it: it["tests"].pop(),
    "path leaves the nodes": put("path", [0, 1, 2, 9]),
    "path -1": put("path", [-1]),
    "path skips a node": put("path", [0, 2, 3]),
    "path not from the root": put("path", [1, 2, 3]),
    "path backwards": put("path", [3, 2, 1, 0]),
    "path shorter than the decisions": put("path", [0, 1, 2]),
    "path of fractions": put("path", [0.0]),
    "token another": put("token", 77),
    "token negative": put("token", -1),
    "kind unknown": put("kind", "corrected"),
    "kind contradicts": put("kind", "recovered"),
    "draw 7": put("draw", 7),
    "emitted another token": put("emitted", [10, 11, 12, 13, 99]),
    "emitted one less": put("emitted", [10, 11, 12, 13]),
    "emitted one more": put("emitted", [10, 11, 12, 13, 14, 15]),
    "emitted nothing": put("emitted", []),
    "discarded from nowhere": put("discarded", [3]),
    "cut off without a stop": lambda it: it.update(emitted=[10, 11], discarded=[12, 13, 14]),
    "seconds negative": put("seconds", "draft", -1.0),
    "seconds endless": put("seconds", "draft", 1e200),
    "seconds text": put("seconds", "draft", "fast"),
    "passes negative": put("passes", -1),
    "passes fraction": put("passes", 1.5),
    "note deep": put("note", "x", nested(200)),
    "note infinite": put("note", "x", [float("-inf")]),
    "note huge": put("note", "x", 2**70),
    "note a list": put("note", []),
    "stop unknown": put("stop", "bored"),
    "stopped before the end": put("stop", "limit"),
    "reason endless": put("reason", "x" * 1_000_000),
    "message half a pair": put("message", "\udc00"),
    "texts bytes": put("texts", "10", "0g"),
    "texts key": put("texts", " 10", "61"),
    "draw missing": lambda it: it.pop("draw"),
}
