"""The native methods that Java declares are those that the JNI library exports."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "spark_plugin/src/main/java/io/holdfast/spark/Native.java"
EXPORTS = ROOT / "rust/jni/src"

JAVA_OF_RUST = {
    "jlong": "long",
    "jint": "int",
    "jboolean": "boolean",
    "jbyte": "byte",
    "JString": "String",
}

Signature = tuple[str, list[str]]


def declared() -> dict[str, Signature]:
    """Returns what each native method of Java returns, and the types of its parameters."""
    source = NATIVE.read_text(encoding="utf-8")
    classes = {name.rpartition(".")[2]: name for name in re.findall(r"import ([\w.]+);", source)}

    def full(java: str) -> str:
        name = java.removesuffix("[]")
        return classes.get(name, name) + java[len(name) :]

    methods = {}
    for returns, name, parameters in re.findall(
        r"static native ([\w\[\]]+) (\w+)\(([^)]*)\)", source
    ):
        types = [full(parameter.split()[0]) for parameter in parameters.split(",") if parameter]
        methods[name] = (full(returns), types)
    return methods


def exported() -> dict[str, Signature]:
    """Returns the same of the tables in the JNI library."""

    def java(rust: str) -> str:
        name = rust.strip("[]").strip('"')
        return JAVA_OF_RUST.get(name, name) + "[]" * rust.startswith("[")

    methods = {}
    for source in EXPORTS.glob("*.rs"):
        for table in re.findall(r"^natives! \{\n(.*?)^\}", source.read_text(), re.M | re.S):
            for name, arguments, returns in re.findall(
                r"(?:raw|rust|env) fn (\w+)\(([^)]*)\)(?: -> (\S+))?;", table
            ):
                first, *others = name.split("_")
                types = re.findall(r"\w+: ([^\s,]+)", arguments)
                methods[first + "".join(map(str.capitalize, others))] = (
                    java(returns) if returns else "void",
                    [java(rust) for rust in types],
                )
    return methods


def test_what_java_declares_is_what_the_library_exports() -> None:
    assert len(declared()) > 60
    assert exported() == declared()
