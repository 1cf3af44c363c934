"""Layers compiled by torch.compile, each as one graph of fixed shapes.

A graph that serves several shapes may round otherwise than one that serves a single shape, and
which of the two torch makes depends on the shapes it has met; a resumed stage meets others
first. So every shape has a graph of its own.
"""

import os
import shutil
from pathlib import Path

import torch
from torch import nn

from instella.errors import BadUse
from instella.training.projection import layers_of

# of one layer; fine-tuning cuts its rows at multiples of 32 tokens (needed_columns)
MOST_SHAPES = 4096
# in torch's command for the compiler, beside blanks
CUTTING = "'\"\\"


def compile_layers(network: nn.Module, cache: Path) -> None:
    """Compile the layers of a network, in place; what is made is kept in ``cache``.

    Raises:
        BadUse: the network has no list of layers, this machine no C++ compiler, or a path
            has blanks or quotes.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BadUse(
            f"compile: {compiler} is not here: install a C++ compiler (apt install g++), or write "
            "compile: false, which gives other bits"
        )
    for path in (cache.absolute(), Path(torch.__file__).parent):
        if any(letter.isspace() or letter in CUTTING for letter in str(path)):
            raise BadUse(
                f"compile: {path}: torch hands this path to the compiler as it is, and a blank or a "
                "quote ends it there: move the project to a path without them, or write "
                "compile: false, which gives other bits"
            )
    # else code that anybody left in a folder for temporary files would be loaded
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    torch._inductor.config.cpp_cache_precompile_headers = False
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MOST_SHAPES
    for layer in layers_of(network, "compile"):
        layer.forward = torch.compile(layer.forward, fullgraph=True, dynamic=False)
