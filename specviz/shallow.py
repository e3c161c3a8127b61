"""A model of the library without some of its layers, sharing every weight: for drafting with what is left (early exit)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch


def shallow(model: torch.nn.Module, keep: Sequence[int]) -> torch.nn.Module:
    """The layers `keep` of `model` (ascending, at least one), its embedding, final norm and head. Nothing is copied or changed.

    Raises LookupError where its list of layers is not found.
    """
    made, decoder = twin(model), twin(model.get_decoder())
    name = next((name for name in ("layers", "h") if isinstance(getattr(decoder, name, None), torch.nn.ModuleList)), None)
    if name is None or model.get_decoder() is model:
        raise LookupError("no list of layers")
    config = copy.copy(model.config.get_text_config())
    config.num_hidden_layers = len(keep)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[i] for i in keep]
    layers = getattr(decoder, name)
    setattr(decoder, name, torch.nn.ModuleList([numbered(layers[old], new) for new, old in enumerate(keep)]))
    setattr(made, made.base_model_prefix, decoder)
    made.config = decoder.config = config
    return made


def twin(module: torch.nn.Module) -> torch.nn.Module:
    """A module of the same parts, which may then be exchanged without the original noticing."""
    made = copy.copy(module)
    made.__dict__["_modules"] = dict(module._modules)
    return made


def numbered(layer: torch.nn.Module, index: int) -> torch.nn.Module:
    """A twin of a layer that keeps its keys and values at place `index` of the cache."""
    made = twin(layer)
    for name, part in layer.named_children():
        setattr(made, name, numbered(part, index) if hasattr(part, "layer_idx") else part)
    if hasattr(made, "layer_idx"):
        made.layer_idx = index
    return made
