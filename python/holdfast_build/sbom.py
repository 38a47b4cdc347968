"""Software bill of materials of the JNI library, in CycloneDX's JSON.

maturin writes the one of the Python extension into the wheel. Equal sources give equal bytes: it
has no time and no random number.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast_build.crates import Crate, linked
from holdfast_build.tools import ROOT

PACKAGE = "holdfast-jni"

#: Place of a build for `tool.maturin.sbom` of pyproject.toml.
FILE = ROOT / "build" / f"{PACKAGE}.cyclonedx.json"


def sbom(target: str) -> bytes:
    """Return the bill of materials of the JNI library for a platform, as Rust names it."""
    crates = linked(PACKAGE, targets=(target,))
    (library,) = (crate for crate in crates if crate.name == PACKAGE)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": _component(library)},
        "components": [_component(crate) for crate in crates if crate is not library],
        "dependencies": [
            {"ref": crate.identifier, "dependsOn": list(crate.needs)} for crate in crates
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _component(crate: Crate) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": crate.identifier,
        "name": crate.name,
        "version": crate.version,
        "scope": "required",
        "licenses": [{"expression": crate.license}],
        "purl": crate.identifier,
    }
    if crate.checksum is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository:
        component["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return component
