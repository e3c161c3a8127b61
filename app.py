"""specviz: watch a language model decode speculatively. `python app.py`, or this folder as a hosted Gradio Space."""

from __future__ import annotations

import argparse
from typing import Any

from specviz.ui import offer, page


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for everybody in the network (default: this computer alone)")
    parser.add_argument("--port", type=int, help="port (default: the first free one from 7860)")
    parser.add_argument("--target", default="", help="folder or GGUF file of your own, offered first")
    parser.add_argument(
        "--draft",
        action="append",
        default=[],
        metavar="[METHOD=]NAME",
        help="folder or GGUF file of its draft model, or a folder of weights trained for it; may be repeated",
    )
    parser.add_argument("--device", default="", help="cpu, cuda or mps, instead of letting visitors choose")
    parser.add_argument("--dtype", default="", help="float32, bfloat16 or float16, instead of letting visitors choose")
    parser.add_argument("--browser", action="store_true", help="open a browser window")
    return parser.parse_args()


def build(**chosen: Any):
    return page.build(offer.from_catalog(**chosen))


if __name__ == "__main__":
    args = options()
    try:
        demo = build(path=args.target, draft=args.draft, device=args.device, dtype=args.dtype)
    except ValueError as error:  # one sentence
        raise SystemExit(f"specviz: {error}") from None
    page.launch(demo, server_name=args.host, server_port=args.port, inbrowser=args.browser)
else:
    demo = build()  # for hosts that import the app
