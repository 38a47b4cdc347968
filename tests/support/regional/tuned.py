"""Pipelines with internal settings: bounds that take long to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.regions.api.options import PipelineOptions


def tune_tasks(patch: Callable[[Any, str, Any], None], **settings: Any) -> None:
    """Let tasks have these `TaskOptions`; `patch` sets an attribute."""
    _tune(patch, "tasks", settings)


def tune_coordinators(patch: Callable[[Any, str, Any], None], **settings: Any) -> None:
    """Let coordinators have these `CoordinatorOptions`; `patch` sets an attribute."""
    _tune(patch, "coordinator", settings)


def _tune(patch: Callable[[Any, str, Any], None], method: str, settings: dict[str, Any]) -> None:
    real = getattr(PipelineOptions, method)
    patch(PipelineOptions, method, lambda *of, **more: replace(real(*of, **more), **settings))
