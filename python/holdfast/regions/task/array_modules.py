"""NumPy or CuPy, as a pipeline was started."""

from __future__ import annotations

from typing import Any


def array_module(*, gpu: bool) -> Any:
    """Return CuPy or NumPy."""
    if gpu:
        import cupy

        return cupy
    import numpy

    return numpy


def missing_gpu() -> str | None:
    """Say why this process cannot have CuPy arrays, and what to do; None if it can."""
    try:
        import cupy
    except ImportError as e:
        return (
            f"CuPy cannot be imported ({e}): install 'holdfast-spark[cuda12]' or "
            "'holdfast-spark[cuda13]' there"
        )
    why = ""
    try:
        if cupy.cuda.runtime.getDeviceCount():
            return None
    except cupy.cuda.runtime.CUDARuntimeError as e:
        why = f" ({e})"
    return f"CuPy finds no CUDA device{why}: run this where there is one, or without gpu=True"
