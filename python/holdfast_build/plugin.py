"""Builds the jars of the Spark plugin: classes for each Spark minor, and the JNI library."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast_build import notices, sbom
from holdfast_build.crates import host
from holdfast_build.minors import MINORS, OLDEST_RELEASE, SOURCES, class_path, form, source_folders
from holdfast_build.tools import ROOT, BuildError, find_cargo, run, say, version

PACKAGE = ROOT / "python" / "holdfast"
NATIVE = PACKAGE / "_native"

SCALA = "2.13"
JAVA_RELEASE = 17

# The oldest time a zip entry can carry: equal inputs give equal jars.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)

# -path: jars of Spark name jars in their manifests that Spark does not ship.
# -proc:none: no annotation processor on Spark's class path runs in our build. -Xprefer:source,
# -implicit:none: javac reads the source path, but compiles none of its sources.
JAVAC_FLAGS = (
    *("--release", str(JAVA_RELEASE), "-Xlint:all,-path", "-Werror", "-proc:none"),
    *("-encoding", "UTF-8", "-Xprefer:source", "-implicit:none"),
)


def native_platform(target: str) -> str:
    """Return the folder of a JNI library, such as ``linux-x86_64``; the plugin derives it, too."""
    machine, _, system, *_ = target.split("-")
    return f"{'macos' if system == 'darwin' else system}-{machine}"


def build_jni_library(target: str | None = None) -> Path:
    """Compile ``rust/jni`` with optimisations and return the path of the library.

    `target` is a platform of cargo-zigbuild with its glibc, such as
    ``aarch64-unknown-linux-gnu.2.17``; by default this machine.
    """
    cargo = find_cargo()
    build = ["build"] if target is None else ["zigbuild", "--target", target]
    say(f"cargo {' '.join(build)} --release -p holdfast-jni")
    # Cargo names the library's path, which CARGO_TARGET_DIR and config files change.
    output = run(
        "cargo build of holdfast-jni",
        *(cargo, *build, "--release", "--locked", "-p", "holdfast-jni", "--lib"),
        "--message-format=json-render-diagnostics",
    )
    for line in output.splitlines():
        message = json.loads(line)
        is_artifact = message.get("reason") == "compiler-artifact"
        if is_artifact and message["target"]["name"] == "holdfast_jni":
            for name in message["filenames"]:
                if Path(name).suffix in {".so", ".dylib", ".dll"}:
                    return Path(name)
    raise BuildError("cargo built holdfast-jni but named no shared library.")


def find_javac() -> str:
    """Return the path of a ``javac`` of JDK 17 or newer: ``JAVA_HOME`` first, then ``PATH``."""
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


def compile_java(minor: str, classes: Path) -> None:
    """Compile the plugin for a Spark minor into the folder `classes`; a warning is an error."""
    folders = source_folders(minor)
    stubs = [folder / "stubs" for folder in folders]
    sources = sorted(file for folder in folders for file in (folder / "java").rglob("*.java"))
    say(f"javac of {len(sources)} Java sources for Spark {minor}")
    with tempfile.TemporaryDirectory(prefix="holdfast-sources-") as folder:
        formed = [_formed(source, minor, Path(folder)) for source in sources]
        javac(formed, class_path=class_path(minor), classes=classes, stubs=stubs)


def _formed(source: Path, minor: str, folder: Path) -> Path:
    """Return a source itself, or a copy in a folder that has its form for a minor."""
    written = source.read_text(encoding="utf-8")
    wanted = form(written, minor)
    if wanted == written:
        return source
    copy = folder / source.relative_to(SOURCES)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(wanted, encoding="utf-8")
    return copy


def javac(
    sources: Sequence[Path], *, class_path: str, classes: Path, stubs: Iterable[Path] = ()
) -> None:
    """Compile Java sources, at least one, as strictly as the plugin's own.

    `class_path` is in the notation of ``javac``. The classes are written to the folder `classes`.
    `stubs` are folders with classes of Spark for javac, which are not compiled.
    """
    command = find_javac()
    with tempfile.NamedTemporaryFile("w", suffix=".args", encoding="utf-8") as args:
        args.writelines(f'"{source}"\n' for source in sources)
        args.flush()
        run(
            "javac",
            *(command, *JAVAC_FLAGS, "-cp", class_path, "-d", str(classes)),
            # Without one, javac would look for sources on the class path.
            *("-sourcepath", os.pathsep.join(map(str, stubs)), f"@{args.name}"),
            shown=True,
            cwd=None,
        )


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file below `folder`, sorted, with ``/`` in names."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def write_jar(jar: Path, entries: dict[str, bytes]) -> None:
    """Write a jar, whole or not at all, whose bytes depend only on `entries` and the manifest."""
    manifest = f"Manifest-Version: 1.0\r\nImplementation-Version: {version()}\r\n\r\n"
    ordered = {"META-INF/MANIFEST.MF": manifest.encode(), **dict(sorted(entries.items()))}
    partial = jar.with_suffix(".jar.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ordered.items():
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)
    partial.replace(jar)


def class_entries(minor: str) -> dict[str, bytes]:
    """Return classes and resources of the plugin for a Spark minor."""
    with tempfile.TemporaryDirectory(prefix="holdfast-classes-") as folder:
        compile_java(minor, Path(folder))
        entries = dict(files_below(Path(folder)))
    names = [name for name in entries if name.endswith(".class")]
    for sources in source_folders(minor):
        entries.update(files_below(sources / "resources"))
    # A loader of classes cannot list its classes.
    entries["holdfast-classes.txt"] = "".join(f"{name}\n" for name in names).encode()
    entries["holdfast-build.properties"] = (
        f"version={version()}\n"
        f"spark.minor={minor}\n"
        f"spark.minors={','.join(MINORS)}\n"
        f"spark.oldest={OLDEST_RELEASE}\n"
    ).encode()
    entries["holdfast-settings.json"] = (PACKAGE / "settings.json").read_bytes()
    entries["META-INF/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return entries


def native_entries(target: str | None = None) -> dict[str, bytes]:
    """Return the JNI library with its description, its licence and its bill of materials.

    The bill of materials is written to `sbom.FILE` as well, for maturin. `target` is as in
    `build_jni_library`.
    """
    library = build_jni_library(target)
    rust_target = host() if target is None else target.partition(".")[0]
    bill = sbom.sbom(rust_target)
    sbom.FILE.parent.mkdir(exist_ok=True)
    sbom.FILE.write_bytes(bill)
    return {
        f"native/{native_platform(rust_target)}/{library.name}": library.read_bytes(),
        "holdfast-native.properties": (
            f"version={version()}\nnative.platforms={native_platform(rust_target)}\n"
        ).encode(),
        "META-INF/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"META-INF/{notices.FILE.name}": notices.FILE.read_bytes(),
        f"META-INF/sbom/{sbom.FILE.name}": bill,
    }


def build_plugin_jars(target: str | None = None) -> list[Path]:
    """Build the jars of the plugin into the Python package.

    ``holdfast-spark-<minor>_<scala>-<version>.jar`` has the classes for one minor, and
    ``holdfast-native-<version>.jar`` the shared JNI library. All other jars in that folder are
    removed. See `build_jni_library` for `target`.
    """
    contents = {f"holdfast-native-{version()}.jar": native_entries(target)}
    for minor in MINORS:
        contents[f"holdfast-spark-{minor}_{SCALA}-{version()}.jar"] = class_entries(minor)
    NATIVE.mkdir(exist_ok=True)
    for stale in NATIVE.glob("*.jar*"):
        stale.unlink()
    for name, entries in contents.items():
        write_jar(NATIVE / name, entries)
        say(f"wrote {NATIVE / name} ({(NATIVE / name).stat().st_size} bytes)")
    return [NATIVE / name for name in contents]
