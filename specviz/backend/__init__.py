"""Speed only: what a device does faster, never a different result. Each file prepares a model in place or leaves it alone."""

from __future__ import annotations

from torch import nn

from specviz.backend import cpu

PREPARE = {"cpu": cpu.prepare}


def prepare(model: nn.Module, device: str) -> str:
    """Makes `model` faster on `device` ("cpu", "cuda:0", ...) where we know how; returns what was done, for the record."""
    make = PREPARE.get(device.split(":")[0])
    return make(model) if make else "stock kernels"
