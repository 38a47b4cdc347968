"""PEP 517 build backend of Holdfast.

A wheel of Holdfast holds the Python extension, the Spark plugin as one jar of classes per Spark
minor, and a jar with the JNI library. This backend builds the jars into
``python/holdfast/_native/``. Then maturin builds the extension and packs everything into one wheel.
The building machine needs ``cargo``, a JDK (17 or newer) and, once, Maven. The machine that
installs the wheel needs none of them.
"""

from __future__ import annotations

from typing import Any

import maturin

from holdfast_build.plugin import build_plugin_jars

# The other hooks are maturin's.
get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
build_sdist = maturin.build_sdist


def build_wheel(*arguments: Any, **keywords: Any) -> str:
    """Build the plugin jars, then the wheel that contains them."""
    build_plugin_jars()
    return str(maturin.build_wheel(*arguments, **keywords))


def build_editable(*arguments: Any, **keywords: Any) -> str:
    """Build the plugin jars in place, then a wheel that points at this source tree."""
    build_plugin_jars()
    return str(maturin.build_editable(*arguments, **keywords))
