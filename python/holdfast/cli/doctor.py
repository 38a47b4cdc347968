"""``holdfast doctor``: checks of this machine, with advice."""

from __future__ import annotations

import argparse
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

# The public names are not used here: `holdfast/__init__.py` may belong to another project.
from holdfast import _core
from holdfast._jars import SPARK_MINORS, UnsupportedSparkError, plugin_jars
from holdfast._sessions import PLUGIN, runs_plugin
from holdfast._spark import DEFAULT_KEY, OF_QUERIES, lacking
from holdfast.cli import folders
from holdfast.cli.java import MissingJavaError, begin_jvm, class_loader, java_version
from holdfast.cli.local_spark import java_errors
from holdfast.cli.output.documents import print_document
from holdfast.files.paths import AnyPath, is_remote_uri, require_nameable
from holdfast.files.printable import printable

#: Another project on PyPI, which installs files into the same folder.
_STRANGER: Final = "holdfast"

#: Bound on the missing classes and methods of Spark that are named.
_NAMED_MISSING: Final = 3


@dataclass(frozen=True)
class KnownToFail:
    """A package whose majors from this one on break PySpark of one minor; `what` says how."""

    package: str
    from_major: int
    what: str


#: By minor of Spark. docs/compatibility.md has the tested versions.
KNOWN_TO_FAIL: Final[Mapping[str, KnownToFail]] = {
    "4.0": KnownToFail(
        "pyarrow", 26, "applyInPandasWithState fails inside PySpark, on every state store provider"
    ),
}


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. A note does not keep Holdfast from working."""

    outcome: Literal["ok", "note", "wrong", "skipped"]
    found: str
    remedy: str = ""


def run(arguments: argparse.Namespace) -> None:
    """Print all findings; OSError if something is wrong."""
    findings = dict(examine(arguments.folder))
    if arguments.json:
        checks = [{"check": name, **asdict(finding)} for name, finding in findings.items()]
        print_document({"checks": checks})
    else:
        for name, one in findings.items():
            print(f"{one.outcome:<8} {name:<18} {printable(one.found)}")
            if one.remedy:
                print(f"{'':<27} {printable(one.remedy)}")
    wrong = sum(one.outcome == "wrong" for one in findings.values())
    if wrong:
        raise OSError(f"{wrong} of {len(findings)} checks found something wrong")


def examine(folder: str | None = None) -> Iterator[tuple[str, Finding]]:
    """Yield each check's name and finding; a file is written into `folder` (path or URI) for it."""
    for_jvm: Mapping[str, Callable[[], Finding]] = {
        "installation": _installation,
        "PySpark": _pyspark,
        "Java": _java,
        "Spark": _spark,
    }
    in_jvm: Mapping[str, Callable[[], Finding]] = {
        "plugin": _plugin,
        "native library": _native_library,
        "settings": _settings,
        "memory": _memory,
    }
    has_jvm = True
    for name, check in for_jvm.items():
        # Java is always checked, so that the person gets both findings at once.
        finding = check() if has_jvm or check is _java else _SKIPPED
        has_jvm = has_jvm and finding.outcome != "wrong"
        yield name, finding
    for name, check in in_jvm.items():
        yield name, _said_by_java(check) if has_jvm else _SKIPPED
    if folder is not None:
        possible = has_jvm or not is_remote_uri(folder)
        yield "checkpoint folder", _folder(folder, has_jvm=has_jvm) if possible else _SKIPPED


def _said_by_java(check: Callable[[], Finding]) -> Finding:
    try:
        with java_errors():
            return check()
    except OSError as error:
        # All but the native library come from settings.
        remedy = "" if check is _native_library else "put there what `holdfast conf` prints"
        return Finding("wrong", str(error), remedy)


_SKIPPED: Final = Finding("skipped", "something that it needs is wrong")


def _installation() -> Finding:
    library, version = platform.libc_ver()
    where = Path(_core.__file__).parent
    if (other := _version_of(_STRANGER)) is not None:
        return Finding(
            "wrong",
            f"the package {_STRANGER} {other} of another project has files in {where}, too",
            f"pip uninstall --yes {_STRANGER}, then install holdfast-spark again, with "
            "--force-reinstall",
        )
    try:
        for minor in SPARK_MINORS:
            plugin_jars(spark=minor)
    except FileNotFoundError as missing:
        return Finding("wrong", str(missing), "install Holdfast again, from a wheel")
    system = f"{platform.system()} {platform.machine()}, {library or 'C library'} {version or '?'}"
    return Finding(
        "ok",
        f"Holdfast {_core.__version__} in {where}, Python {platform.python_version()}, {system}",
    )


def _pyspark() -> Finding:
    if find_spec("pyspark") is None:
        return Finding(
            "wrong",
            "it is not installed for this Python",
            "pip install 'holdfast-spark[spark]', or run this with the Python of the driver",
        )
    import pyspark

    try:
        jar = plugin_jars()[0]
    except UnsupportedSparkError as error:
        return Finding("wrong", str(error), "install another PySpark")
    takes = f"{pyspark.__version__} takes {jar.name}"
    known = KNOWN_TO_FAIL.get(".".join(pyspark.__version__.split(".")[:2]))
    if known is not None and (found := _version_of(known.package)):
        major = re.match(r"\d+", found)
        if major is not None and int(major[0]) >= known.from_major:
            return Finding(
                "note",
                f"{takes}; with {known.package} {found}, {known.what}",
                f"pip install '{known.package}<{known.from_major}', on the driver and on executors",
            )
    return Finding("ok", takes)


def _version_of(package: str) -> str | None:
    """Return the version that is installed for this Python, if any is."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    try:
        return Finding("ok", str(java_version()))
    except MissingJavaError as missing:
        return Finding("wrong", missing.what, missing.remedy)


def _spark() -> Finding:
    import pyspark

    try:
        jvm = begin_jvm()
    except OSError as error:
        return Finding("wrong", str(error), "If SPARK_HOME is set, it must lead to a whole Spark")
    version = str(jvm.org.apache.spark.package.SPARK_VERSION())
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    if version != pyspark.__version__:
        return Finding(
            "wrong",
            f"{version} in {home}, but PySpark is {pyspark.__version__}",
            "let SPARK_HOME lead to the Spark of this PySpark, or install the PySpark of that "
            "Spark: the jar of Holdfast is that for PySpark's version",
        )
    return Finding("ok", f"{version} in {home}")


def _plugin() -> Finding:
    jvm = begin_jvm()
    missing = list(jvm.io.holdfast.spark.minor.SparkProbe.missing(class_loader(jvm)))
    if missing:
        more = len(missing) - _NAMED_MISSING
        named = ", ".join(missing[:_NAMED_MISSING]) + (f" and {more} more" if more > 0 else "")
        return Finding(
            "wrong",
            f"this Spark lacks {named}",
            "install a Spark that this Holdfast was tested on: docs/compatibility.md",
        )
    return Finding("ok", "Spark has every class and method that it uses")


def _native_library() -> Finding:
    jvm = begin_jvm()
    jvm.java.lang.Class.forName("io.holdfast.spark.Native", True, class_loader(jvm))
    folder = jvm.java.lang.System.getProperty("java.io.tmpdir")
    return Finding("ok", f"the JVM loaded it by way of {folder}")


def _settings() -> Finding:
    conf = begin_jvm().org.apache.spark.SparkConf()
    found = {key: conf.get(key, None) for key in ("spark.plugins", DEFAULT_KEY, *OF_QUERIES)}
    if not any(found.values()):
        return Finding(
            "note",
            "spark-defaults.conf says nothing of Holdfast",
            "call holdfast.configure(builder), or put there what `holdfast conf` prints",
        )
    wrong = [
        f"{key} is {value or 'not set'}, not {OF_QUERIES[key]}"
        for key, value in lacking(found.get).items()
    ]
    if not runs_plugin(found["spark.plugins"]):
        wrong.insert(0, f"spark.plugins is {found['spark.plugins'] or 'not set'}, without {PLUGIN}")
    if wrong:
        said = f"spark-defaults.conf: {'; '.join(wrong)}"
        return Finding("wrong", said, "put there what `holdfast conf` prints")
    return Finding("ok", "spark-defaults.conf lets all queries run on Holdfast")


def _memory() -> Finding:
    jvm = begin_jvm()
    target = jvm.io.holdfast.spark.executor.MemoryTarget.here(jvm.org.apache.spark.SparkConf())
    return Finding("ok", f"state stays in memory up to {target.text()}")


def _folder(given: str, *, has_jvm: bool) -> Finding:
    try:
        folder = folders.given(given)
        if has_jvm:
            try:
                require_nameable(folder, begin_jvm())
            except ValueError as error:
                return Finding("wrong", *str(error).split(". ", maxsplit=1))
        made = _make(folder)
        try:
            _try_out(folder)
        finally:
            for one in reversed(made):
                one.rmdir()
    except (OSError, ValueError) as error:
        return Finding(
            "wrong",
            str(error),
            "the users of the driver and of the executors need to list, read, write and delete "
            "there; settings of Hadoop's client belong into spark-defaults.conf, as spark.hadoop.*",
        )
    return Finding("ok", f"files in {given} can be created, read, replaced and deleted")


def _make(folder: AnyPath) -> list[AnyPath]:
    """Make a folder; returns each folder that it made, the outermost first."""
    made: list[AnyPath] = []
    there = folder
    while not there.exists():
        made.insert(0, there)
        there = there.parent
    folder.make_folder(exist_ok=True)
    return made


def _try_out(folder: AnyPath) -> None:
    # Spark and Holdfast ignore names that begin with a dot.
    probe = folder / f".doctor-{uuid.uuid4().hex}"
    try:
        for text in ("first", "second"):
            probe.replace_text(text)
            if (read := probe.read_text()) != text:
                raise OSError(f"{probe}: {text!r} was written, and {read!r} read")
    finally:
        probe.unlink(missing_ok=True)
