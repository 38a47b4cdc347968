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
    """Return what CuPy arrays lack in this process, and what to do; None where nothing is."""
    try:
        import cupy
    except ImportError as e:
        return f"CuPy cannot be imported ({e}): install 'holdfast[gpu]' there"
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as e:
        return f"CuPy finds no CUDA device ({e}): run this where there is one, or without gpu=True"
    if devices == 0:
        return "CuPy finds no CUDA device: run this where there is one, or without gpu=True"
    return None
