"""Builds the plugin jar: Java classes, the JNI library, and a description of both."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast_build import notices, sbom
from holdfast_build.crates import host
from holdfast_build.minors import NEWEST, source_folders
from holdfast_build.tools import ROOT, BuildError, find_cargo, say, version

NATIVE = ROOT / "python" / "holdfast" / "_native"

SPARK_MINOR = NEWEST
SCALA = "2.13"
JAVA_RELEASE = 17

# The oldest time a zip entry can carry: equal inputs give equal jars.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)

# -path: jars of Spark name jars in their manifests that Spark does not ship.
# -proc:none: no annotation processor that happens to be on Spark's class path runs in our build.
JAVAC_FLAGS = [
    "--release",
    str(JAVA_RELEASE),
    "-Xlint:all,-path",
    "-Werror",
    "-proc:none",
    "-encoding",
    "UTF-8",
    # Of the source path: javac reads them, and compiles none into the jar.
    "-Xprefer:source",
    "-implicit:none",
]


def native_platform() -> str:
    """Return the folder of this machine's JNI library in the jar, such as ``linux-x86_64``.

    The plugin derives the same name from ``os.name`` and ``os.arch``.
    """
    system = {"Darwin": "macos"}.get(platform.system(), platform.system().lower())
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return f"{system}-{machine}"


def build_jni_library() -> Path:
    """Compile ``rust/jni`` with optimisations and return the path of the library.

    Raises
    ------
    BuildError
        If ``cargo`` is missing or fails.
    """
    cargo = find_cargo()
    say("cargo build --release -p holdfast-jni")
    # Cargo says where it put the library: that holds for every CARGO_TARGET_DIR and config file.
    done = subprocess.run(
        [
            *(cargo, "build", "--release", "--locked", "-p", "holdfast-jni", "--lib"),
            "--message-format=json-render-diagnostics",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"cargo build of holdfast-jni failed with status {done.returncode}.")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        is_artifact = message.get("reason") == "compiler-artifact"
        if is_artifact and message["target"]["name"] == "holdfast_jni":
            for name in message["filenames"]:
                if Path(name).suffix in {".so", ".dylib", ".dll"}:
                    return Path(name)
    raise BuildError("cargo built holdfast-jni but named no shared library.")


def find_javac() -> str:
    """Return the path of a ``javac`` of JDK 17 or newer: ``JAVA_HOME`` first, then ``PATH``.

    Raises
    ------
    BuildError
        If there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", "javac") if home else None
    javac = str(in_home) if in_home and in_home.exists() else shutil.which("javac")
    if javac is None:
        raise BuildError(
            f"javac was not found in JAVA_HOME ({home or 'not set'}) or on PATH. Building Holdfast "
            f"from source needs a JDK, {JAVA_RELEASE} or newer (a JRE has no javac)."
        )
    done = subprocess.run([javac, "-version"], capture_output=True, check=False, text=True)
    said = (done.stdout + done.stderr).strip()  # JDK 8 answers on stderr
    found = re.search(r"javac (\d+)", said)
    if found is None or int(found.group(1)) < JAVA_RELEASE:
        raise BuildError(
            f"{javac} is '{said}', but the Spark plugin needs JDK {JAVA_RELEASE} or newer. "
            "Set JAVA_HOME to one."
        )
    return javac


def spark_jars() -> Path:
    """Return the folder with the jars of the PySpark in the build environment.

    Raises
    ------
    BuildError
        If there is no PySpark, or it is of another minor than the plugin is written for.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError(
            f"pyspark {SPARK_MINOR} is not installed in the build environment ({sys.executable}). "
            "Its jars are what the Spark plugin is compiled against. Build with isolation "
            "(plain `pip install .`), or install requirements/dev.txt first."
        )
    home = Path(spec.origin).parent
    found = re.search(
        r"""__version__[^=]*=\s*["']([^"']+)["']""", (home / "version.py").read_text()
    )
    have = found.group(1) if found else "unknown"
    if not have.startswith(f"{SPARK_MINOR}."):
        raise BuildError(
            f"the build environment has pyspark {have}, but the plugin is for {SPARK_MINOR}."
        )
    return home / "jars"


def java_sources() -> list[Path]:
    """Return all Java sources of this Spark minor."""
    folders = source_folders(SPARK_MINOR)
    return sorted(file for folder in folders for file in (folder / "java").rglob("*.java"))


def compile_java(classes: Path) -> None:
    """Compile the Spark plugin into the folder `classes`; a warning is an error.

    Raises
    ------
    BuildError
        If ``javac`` or PySpark is missing, or the sources do not compile.
    """
    sources = java_sources()
    if not sources:
        raise BuildError(f"there are no Java sources under {ROOT / 'spark_plugin'}.")
    stubs = [folder / "stubs" for folder in source_folders(SPARK_MINOR)]
    javac(sources, class_path=f"{spark_jars()}/*", classes=classes, stubs=stubs)


def javac(
    sources: Sequence[Path], *, class_path: str, classes: Path, stubs: Iterable[Path] = ()
) -> None:
    """Compile Java sources as strictly as the plugin's own.

    Parameters
    ----------
    sources : sequence of Path
        Files to compile, at least one.
    class_path : str
        In the notation of ``javac``.
    classes : Path
        Folder for the compiled classes.
    stubs : iterable of Path
        Folders with classes of Spark as javac accepts them; none is compiled into `classes`.

    Raises
    ------
    BuildError
        If ``javac`` is missing, or the sources do not compile without a warning.
    """
    command = find_javac()
    say(f"javac of {len(sources)} Java sources against {class_path}")
    with tempfile.NamedTemporaryFile("w", suffix=".args", encoding="utf-8") as args:
        args.writelines(f'"{source}"\n' for source in sources)
        args.flush()
        done = subprocess.run(
            [
                *(command, *JAVAC_FLAGS, "-cp", class_path, "-d", str(classes)),
                # Without one, javac would look for sources on the class path.
                *("-sourcepath", os.pathsep.join(map(str, stubs)), f"@{args.name}"),
            ],
            stdout=sys.stderr,
            check=False,
        )
    if done.returncode != 0:
        raise BuildError(f"javac failed with status {done.returncode}.")


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file below `folder`, sorted, with ``/`` in names."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def write_jar(jar: Path, entries: dict[str, bytes]) -> None:
    """Write a jar whose bytes depend on nothing but `entries`.

    Parameters
    ----------
    jar : Path
        File to write. It appears whole or not at all.
    entries : dict
        Content by entry name. The manifest is added in front.
    """
    manifest = f"Manifest-Version: 1.0\r\nImplementation-Version: {version()}\r\n\r\n"
    ordered = {"META-INF/MANIFEST.MF": manifest.encode(), **dict(sorted(entries.items()))}
    partial = jar.with_suffix(".jar.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ordered.items():
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    partial.replace(jar)


def legal_entries(bill: bytes) -> dict[str, bytes]:
    """Return the licence of the jar, the notices of what it contains, and its bill of materials."""
    return {
        "META-INF/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"META-INF/{notices.FILE.name}": notices.FILE.read_bytes(),
        f"META-INF/sbom/{sbom.FILE.name}": bill,
    }


def build_plugin_jar() -> Path:
    """Build ``holdfast-spark-<minor>_<scala>-<version>.jar`` into the Python package.

    The bill of materials of the JNI library is written to `sbom.FILE` as well, for maturin.

    Returns
    -------
    Path
        The jar. Jars of other versions in that folder are removed.

    Raises
    ------
    BuildError
        If a tool is missing or a compiler fails.
    """
    library = build_jni_library()
    with tempfile.TemporaryDirectory(prefix="holdfast-classes-") as folder:
        classes = Path(folder)
        compile_java(classes)
        entries = dict(files_below(classes))
    for sources in source_folders(SPARK_MINOR):
        entries.update(files_below(sources / "resources"))
    entries[f"native/{native_platform()}/{library.name}"] = library.read_bytes()
    bill = sbom.sbom(host())
    entries.update(legal_entries(bill))
    entries["holdfast-build.properties"] = (
        f"version={version()}\nspark.minor={SPARK_MINOR}\nnative.platforms={native_platform()}\n"
    ).encode()

    NATIVE.mkdir(exist_ok=True)
    for stale in NATIVE.glob("*.jar*"):
        stale.unlink()
    jar = NATIVE / f"holdfast-spark-{SPARK_MINOR}_{SCALA}-{version()}.jar"
    write_jar(jar, entries)
    sbom.FILE.parent.mkdir(exist_ok=True)
    sbom.FILE.write_bytes(bill)
    say(f"wrote {jar} ({jar.stat().st_size} bytes)")
    return jar
