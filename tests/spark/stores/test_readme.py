"""README and docs/, done word for word and in order, as a reader would.

Every block between fences is here: what is done with it, or why nothing is. In a clean environment
all of it is done; the installed package alone does what needs no installation of its own. Some
documents begin in an empty folder; the others go on with what those before them made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from support.spark.readme import Block, Reader, blocks

if TYPE_CHECKING:
    from support.spark.object_stores import S3Server

ROOT = Path(__file__).resolve().parents[3]

#: What blocks are for. A *program* is saved and run, and one that is *saved* is run by a later
#: block. *pasted* is Python that goes into one session with what was pasted before, *printed* is
#: what the program before printed, *terminal* has commands and what they print; *installation* runs
#: in the clone of the repository.
Kind = Literal["not run", "installation", "program", "saved", "pasted", "printed", "terminal"]


@dataclass(frozen=True)
class Step:
    """A block of a document: how it begins, and what the reader does with it.

    Attributes
    ----------
    kind
        What the block is for.
    begins
        Beginning of the block.
    note
        For "not run", the reason; for "program" and "saved", the file.
    varies
        Pattern of what differs from run to run in each line that is printed.
    everywhere
        Whether the installed package does it as well, in which case it takes seconds.
    """

    kind: Kind
    begins: str
    note: str = ""
    varies: str = r"(?!)"
    everywhere: bool = False


#: The blocks of the documents that are read in this order, in one folder and one Python session.
IN_ORDER = {
    "README.md": (
        Step("not run", "make demo  #", "takes minutes"),
        Step("installation", "make wheel\npip install"),
        Step("program", "import time\nfrom pathlib import Path\n\nfrom pyspark", "counts.py"),
        Step("printed", "batch 0: 1000 events of 100 keys"),
        Step("terminal", "$ ls checkpoints/counts/state", varies="[0-9a-f]{16}-[0-9a-f]{8}"),
    ),
    "docs/quick-start.md": (
        Step("pasted", "from pathlib import Path\n\nimport numpy", everywhere=True),
        Step("pasted", "import numpy as np\nimport pyarrow as pa\nfrom pyspark", everywhere=True),
        # Bytes and times in the last two columns.
        Step(
            "printed", "id  batch  outcome  failed", varies=r"(?<=[\d-]) \S+ \S+$", everywhere=True
        ),
        Step("not run", "make demo\n", "takes minutes"),
    ),
    "docs/reference/settings.md": (Step("terminal", "$ holdfast conf > holdfast.conf"),),
    "docs/installation.md": (
        # Of the machine: paths and versions.
        Step(
            "terminal",
            "$ holdfast doctor checkpoints/doctor",
            varies=r"(?<= )/[^ ,]*|(?<=Python )[\d.]+|Linux .*|\d+ MiB",
            everywhere=True,
        ),
        Step("terminal", "$ mkdir -p cluster/jars"),
        Step("saved", "from pyspark.sql import SparkSession\n\nimport holdfast", "check.py"),
        Step("terminal", "$ SPARK_CONF_DIR=$PWD/cluster/conf spark-submit"),
        Step("not run", "spark.archives", "needs a cluster"),
        Step("not run", "spark-submit --master spark://", "test_standalone.py runs a cluster"),
        Step("not run", "export SPARK_CONF_DIR", "test_connect.py starts a server"),
        Step("not run", "spark-pipelines --remote", "test_connect.py runs a pipeline"),
        Step("not run", "FROM apache/spark", "needs a container engine"),
        Step("not run", "spark-submit --master k8s://", "needs Kubernetes"),
    ),
    "docs/regional-pipelines.md": (
        Step("pasted", "from pathlib import Path\n\nimport pyarrow as pa", everywhere=True),
        Step("pasted", "def run_batch(number):", everywhere=True),
        # Files, bytes and times in the last columns.
        Step("printed", "broken:   {'bern': 3,", varies=r"(?<=\d) \S+ \S+ \S+$", everywhere=True),
    ),
    "docs/regional/state.md": (
        Step("pasted", "import pyarrow as pa\n\nimport holdfast", everywhere=True),
        Step("printed", "2 [1, 2]", everywhere=True),
    ),
    "docs/regional/tables.md": (
        Step("pasted", "import pyarrow as pa\nimport pyarrow.compute", everywhere=True),
        Step("printed", "2 {'device': ['a', 'b'],", everywhere=True),
        Step("pasted", "from datetime import datetime, timedelta", everywhere=True),
        Step("printed", "2 [1, 2]", everywhere=True),
    ),
    "docs/regional/operators.md": (
        Step("pasted", "import pyarrow as pa\n\nimport holdfast", everywhere=True),
        Step("printed", "2 {'site': ['bern', 'riga'],", everywhere=True),
        Step("saved", "import numpy as np\n", "running_mean.py", everywhere=True),
        Step("saved", "from contextlib import", "test_running_mean.py", everywhere=True),
        Step("installation", "pip install pytest"),
        Step("terminal", "$ python -m pytest", varies=r"[\d.]+s(?=$)", everywhere=True),
    ),
    "docs/regional/coordinators.md": (
        Step("program", "import json\nfrom pathlib", "models.py", everywhere=True),
        Step("printed", "2 [('bern', 10.0, 1),", everywhere=True),
    ),
    "docs/regional/delta-and-kafka.md": (
        Step("installation", "pip install deltalake"),
        Step("pasted", "from deltalake import DeltaTable\n", everywhere=True),
        Step("printed", "100000", everywhere=True),
        Step("pasted", "from deltalake import CommitProperties", everywhere=True),
        Step("pasted", "query = pipeline.foreach_batch(append_once)", everywhere=True),
        Step("printed", "100000", everywhere=True),
        Step("not run", ".write_kafka(", "needs Kafka with TLS"),
        Step("not run", "def publish(batch, batch_id):", "needs Kafka"),
    ),
    "docs/regional/own-sink.md": (
        Step("pasted", "import json\nimport os\nimport shutil", everywhere=True),
        Step("printed", "100000 5", everywhere=True),
        Step("pasted", "class SharingSink(SqliteSink):", everywhere=True),
        Step("printed", "100000 5", everywhere=True),
    ),
    "docs/regional/sinks.md": (
        Step("pasted", "class Alarms(holdfast.Operator):", everywhere=True),
        Step("printed", "plausible 99", everywhere=True),
    ),
    "docs/regional/sources.md": (
        Step("pasted", "source = holdfast.FileSplits(", everywhere=True),
        Step("pasted", "import time\nfrom datetime import timedelta", everywhere=True),
        Step("printed", "bob", everywhere=True),
    ),
    "docs/monitoring.md": (
        Step("not run", "export SPARK_DAEMON_CLASSPATH", "test_ui_tab.py runs a server with it"),
        Step("not run", "spark.metrics.conf", "test_metrics.py scrapes a session that has these"),
        # The size of metadata varies, because it has paths. A slow task writes two files. In the
        # history the times and the run vary.
        Step(
            "terminal",
            "$ holdfast show checkpoints/dev",
            varies=r"\d+ \d+(?= -$)|\d{4}-\d\d-\d\dT[\d:]+Z \d+|[0-9a-f]{8}(?= -$)",
            everywhere=True,
        ),
        Step("not run", "newest attempts", "has no region that fails; test_details.py has one"),
        Step("pasted", "class Checked(Deviation):", everywhere=True),
        Step("printed", "{'hot_readings': ", everywhere=True),
    ),
    "docs/changes.md": (
        Step("pasted", 'query = pipeline.write_parquet("deviations")', everywhere=True),
    ),
    "docs/tutorials/transform-with-state.md": (
        Step("pasted", "from pyspark.sql import SparkSession\n\nimport holdfast", everywhere=True),
        Step("pasted", "import json\nfrom pathlib import Path", everywhere=True),
        Step("pasted", "from pyspark.sql import Row\nfrom pyspark", everywhere=True),
        Step("pasted", "latest = {}\n", everywhere=True),
        Step("printed", "attic    33.0 3", everywhere=True),
        Step("pasted", "latest.clear()\n", everywhere=True),
        Step("printed", "attic    33.0 4", everywhere=True),
        Step("pasted", 'state = spark.read.format("statestore")', everywhere=True),
        Step("printed", "attic    33.0 4", everywhere=True),
        Step("pasted", "HOUR_MS = 3_600_000\n", everywhere=True),
        Step("pasted", 'Path("signs").mkdir()\n', everywhere=True),
        Step("printed", "cellar is silent since minute 605", everywhere=True),
    ),
    "docs/file-systems.md": (
        Step("not run", '.write_parquet("s3a://reports', "needs a cluster with HDFS and S3"),
        Step("not run", "$ holdfast cost progress.jsonl", "test_cost_command.py compares it"),
        Step("not run", 'with open("progress.jsonl"', "goes on with a query of the reader"),
    ),
    "CONTRIBUTING.md": (
        Step("not run", "make test    # all tests", "lists commands of this repository"),
    ),
}

_TERM = r"[0-9a-f]{16}(?=-[0-9a-f]{8}\.hf)"
_DAMAGE = rf"/\S*(?=/checkpoints)|{_TERM}|(?<=expected )\w+|(?<=found )\w+"
_OF_ATTEMPTS = r"(?<=\d) \S+ \S+ \S+$"  # files, bytes and times of a history

#: The blocks of the documents that begin in an empty folder and in a new Python session.
ON_THEIR_OWN = {
    "docs/regional/event-time.md": (
        Step("pasted", "from datetime import datetime, timedelta"),
        Step("printed", "2 on time bern 12:00 20.5"),
        Step("pasted", "class QuarterHours(holdfast.Operator):"),
        Step("printed", "3 mean bern 12:00 20.5"),
        Step("pasted", 'EVENTS = pa.schema([("site"'),
        Step("printed", "3 [{'site': 'bern', 'sensor': 2"),
        Step("pasted", "class Reminder(holdfast.Operator):"),
    ),
    "docs/regional/recipes.md": (
        Step("pasted", "from datetime import datetime, timedelta"),
        Step("printed", "3 a 12:00 7.0 2"),
        Step("pasted", "SESSIONS = pa.schema("),
        Step("printed", "3 a 12:00 12:14 3"),
        Step("pasted", "MESSAGES = pa.schema("),
        Step("printed", "2 bern 1 12:00"),
        Step("pasted", "from datetime import datetime, timedelta"),
        Step("printed", "2 ann 12:00 12:05"),
        Step("pasted", "PAYMENTS = pa.schema("),
        Step("printed", "['ann', 9.0, 0, 0.0, 1.0]"),
    ),
    "docs/regional/failures.md": (
        Step("program", "import sys\n\nimport pyarrow as pa", "totals.py"),
        Step("printed", "2 [('bern', 1.0), "),
        Step("terminal", "$ holdfast quarantine", varies=r"\d{4}-\d\d-\d\dT[\d:]+Z"),
        Step("not run", "$ holdfast quarantine", "test_quarantine_skip.py has such a region"),
    ),
    "docs/tutorials/failing-region.md": (
        Step("pasted", "import time\nfrom pathlib"),
        Step("pasted", "import numpy as np\nfrom pyspark"),
        Step("printed", "{'bern': 10,"),
        Step("pasted", 'Path("calibration/riga").unlink()'),
        Step("printed", "{'bern': 40,"),
        Step("pasted", "query.print_history()"),
        Step("printed", "id  batch  outcome   failed", varies=_OF_ATTEMPTS),
        Step("pasted", 'calibrate("riga", 0.25)'),
        Step("printed", "{'bern': 50,", varies=_OF_ATTEMPTS),
        Step("pasted", "query.stop()"),
        Step(
            "terminal",
            "$ holdfast history checkpoints/sites",
            varies=r"\d{4}-\d\d-\d\dT[\d:]+Z \d+|(?<= )[0-9a-f]{8}(?= )",
        ),
    ),
    "docs/tutorials/cupy-state.md": (
        Step("pasted", "GPU = False"),
        Step("pasted", "import numpy as np\n"),
        Step("pasted", "from pathlib import Path\n\nimport pyarrow.parquet"),
        Step("printed", "1248576"),
        # Metadata has the paths of the output, so its size varies.
        Step("terminal", "$ holdfast show checkpoints/smoothed", varies=r"\d{4}(?= -$)"),
    ),
    "docs/tutorials/move-from-rocksdb.md": (
        Step("saved", "import json\nimport sys\nfrom pathlib", "clicks.py"),
        Step("terminal", "$ python clicks.py rocksdb"),
        Step("terminal", "$ holdfast cost checkpoints/clicks", varies=r"(?<=query )\S+|\d+,\d+ -$"),
        Step("terminal", "$ holdfast adopt checkpoints/clicks", varies=r"\d+(?= s: add)"),
        Step("terminal", "$ python clicks.py holdfast"),
        Step("terminal", "$ holdfast repartition checkpoints/clicks"),
        Step("terminal", "$ holdfast leave checkpoints/clicks"),
    ),
    "docs/tutorials/test-a-changed-query.md": (
        Step("saved", "import sys\n\nfrom pyspark.sql import SparkSession", "orders.py"),
        Step("terminal", "$ mkdir orders\n"),
        Step("terminal", "$ holdfast tag checkpoints/orders friday"),
        Step("terminal", '$ echo \'{"country": "CH", "amount": 5}\''),
        Step("terminal", "$ holdfast state checkpoints/orders"),
        Step("terminal", "$ rm -r checkpoints/trial"),
    ),
    "docs/tutorials/debug-a-number.md": (
        Step("saved", "from pyspark.sql import SparkSession\n", "sales.py"),
        Step("terminal", "$ mkdir sales\n"),
        Step("terminal", "$ holdfast diff checkpoints/sales monday tuesday"),
        Step("terminal", "$ holdfast diff checkpoints/sales 0 1"),
        Step("terminal", "$ grep -o"),
        Step("terminal", '$ echo \'{"country": "CH", "amount": 25}\''),
    ),
    "docs/stores/read-state.md": (
        Step("not run", "import holdfast\n\nwith", "test_open_state.py makes state and reads it"),
        Step("not run", "import duckdb", "test_open_state.py has these engines"),
        Step("not run", "holdfast state", "test_open_state.py runs the command"),
        Step("not run", "with (\n    holdfast.open_state", "test_state_changes.py compares"),
        Step("not run", "with holdfast.open_state", "test_state_changes.py watches"),
        Step("not run", "with holdfast.open_state", "test_opened_state.py reads pipelines"),
    ),
    "docs/stores/isolation.md": (
        Step("program", "from pathlib import Path\n\nfrom pyspark.sql import", "readings.py"),
        Step("printed", "readings 0: [20.0, 21.0]"),
        Step("terminal", "$ holdfast dead-letters dead\n", varies=r"[0-9a-f-]{36}"),
        Step("program", "from contextlib import suppress\nfrom pathlib import Path", "orders.py"),
        Step("printed", "batch 0: [(1, 1),"),
        Step(
            "terminal",
            "$ holdfast parked checkpoints/orders\n",
            varies=r"\d{4}-\d\d-\d\dT[\d:]+Z|\d+(?=  \[)",
        ),
        Step("terminal", "$ holdfast parked checkpoints/orders --rows json"),
        Step("terminal", "$ holdfast parked checkpoints/orders skip", varies=r"(?<= in )/\S+"),
        Step("program", "from orders import arrive, count", "dropped.py"),
        Step("printed", "batch 5: [(4, 5)]"),
    ),
    "docs/recovery.md": (
        Step("pasted", "import json\nfrom pathlib import Path\n\nfrom pyspark.errors"),
        Step("printed", "batch 0: ada 10"),
        Step("terminal", "$ holdfast show checkpoints/totals --id 3", varies=_TERM),
        Step("pasted", "def flip(file, position):"),
        Step("printed", "Caused by: io.holdfast.spark.DamagedStateException:", varies=_DAMAGE),
        Step("terminal", "$ holdfast verify checkpoints/totals ||", varies=_DAMAGE),
        Step("pasted", 'state = spark.read.format("statestore")'),
        Step("printed", "[('ada', 20),"),
        Step("terminal", "$ cp -a checkpoints/totals"),
        Step("pasted", "run()\n"),
        Step("printed", "batch 3: ada 120"),
        Step("terminal", "$ holdfast verify checkpoints/totals\n"),
        Step("not run", "Holdfast found damage and worked around it:", "test_damage.py does it"),
        Step("pasted", "class Counted(holdfast.Operator):"),
        Step("printed", "6 5"),
        Step("pasted", 'newest = max(Path("checkpoints/counted/metadata")'),
        Step("terminal", "$ holdfast verify checkpoints/counted ||", varies=_DAMAGE),
        Step("pasted", "try:\n    start()"),
        Step("printed", "checkpoint 6 cannot be restored", varies=_DAMAGE),
        Step("pasted", "query = start(checkpoint_id=5)"),
        Step("printed", "7 5"),
    ),
}

#: As above, with checkpoints in this bucket.
BUCKET = "my-bucket"
ON_S3 = {
    "docs/tutorials/object-storage.md": (
        # Of this PySpark.
        Step("terminal", "$ ls $(python -c", varies=r"(?<=-)\d+\.\d+\.\d+(?=\.jar)"),
        Step("not run", "spark.jars.packages", "the server of the test has an address of its own"),
        Step("pasted", "import json\nfrom pathlib import Path\n\nfrom pyspark.sql import SparkS"),
        Step("printed", "[('ada', 15),"),
        Step("pasted", "spark.stop()\n"),
        Step("printed", "[('ada', 115)]"),
        Step("terminal", "$ holdfast show s3a://my-bucket", varies=r"query \S+(?=,)"),
        Step("terminal", "$ holdfast verify s3a://my-bucket"),
        Step("not run", '{"Rules": [{"ID": "uploads"', "a rule of Amazon's S3"),
    ),
}

DOCUMENTS = IN_ORDER | ON_THEIR_OWN | ON_S3


def do(reader: Reader, steps: Iterator[tuple[Step, Block]]) -> None:
    """Do what the blocks say, and compare what they print with what the document shows."""
    printed: list[str] = []
    for step, block in steps:
        if step.kind == "installation":
            reader.shell(block.text, folder=ROOT)
        elif step.kind in ("program", "saved"):
            (reader.folder / step.note).write_text(block.text)
            if step.kind == "program":
                printed = reader.shell(f"python {step.note}", with_errors=False)
        elif step.kind == "pasted":
            printed = reader.paste(block.text)
        elif step.kind == "printed":
            assert comparable(printed, step) == comparable(block.text.splitlines(), step)
        elif step.kind == "terminal":
            for command, output in block.commands():
                shown = comparable(reader.shell(command), step)
                # What a long run says on the way is not shown.
                assert not output or shown == comparable(output, step), command


def comparable(lines: list[str], step: Step) -> list[str]:
    """Leave out what varies, and how far columns are apart."""
    return [re.sub(step.varies, "...", " ".join(line.split())) for line in lines]


def of_document(name: str) -> Iterator[tuple[Step, Block]]:
    return zip(DOCUMENTS[name], blocks(ROOT / name), strict=True)


def in_order(wanted: Callable[[Step], bool]) -> Iterator[tuple[Step, Block]]:
    """Yield the blocks of the documents that go on with each other."""
    for name in IN_ORDER:
        yield from ((step, block) for step, block in of_document(name) if wanted(step))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_of_a_document_is_done_or_has_a_reason_not_to_be(name: str) -> None:
    steps, found = DOCUMENTS[name], blocks(ROOT / name)
    languages = dict.fromkeys(("program", "saved", "pasted"), "python") | {"terminal": "console"}
    for step, block in zip(steps, found, strict=False):
        where = f"{name}, line {block.line}: {block.text.splitlines()[0]}"
        assert block.text.startswith(step.begins), where
        assert block.language in (languages.get(step.kind, "sh"), "text"), where
        assert block.language != "text" or step.kind in ("not run", "printed"), where
        assert step.kind != "not run" or step.note, where
    assert [block.line for block in found[len(steps) :]] == [], "blocks that are not in DOCUMENTS"
    assert len(found) == len(steps), f"DOCUMENTS has blocks that {name} has not"


def test_other_documents_have_no_programs_and_no_commands() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    others = [name for name in listed.stdout.split() if name not in DOCUMENTS]
    assert others
    for name in others:
        for block in blocks(ROOT / name):
            # A list of pages or of functions is no program.
            known = ("", "{toctree}", "{eval-rst}")
            assert block.language in known, f"{name}, line {block.line}"
            assert not re.search(r"^(\$|pip|make|import|from) ", block.text, re.MULTILINE), name


@pytest.mark.spark
def test_the_regional_programs_of_the_documents_run_in_order_and_print_what_they_show(
    tmp_path: Path,
) -> None:
    with Reader(tmp_path, Path(sys.prefix)) as reader:
        do(reader, in_order(lambda step: step.everywhere))


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("name", ON_THEIR_OWN)
def test_a_document_that_stands_on_its_own_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    with Reader(tmp_path, Path(sys.prefix)) as reader:
        do(reader, of_document(name))


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("name", ON_S3)
def test_a_document_about_a_bucket_prints_what_it_shows(
    name: str, tmp_path: Path, s3: S3Server
) -> None:
    store = s3.store(BUCKET)
    for folder in ("conf", "reader"):
        (tmp_path / folder).mkdir()
    client = {"spark.driver.extraClassPath": os.pathsep.join(map(str, s3.client))}
    settings = "".join(f"{key} {value}\n" for key, value in (store.settings | client).items())
    (tmp_path / "conf" / "spark-defaults.conf").write_text(settings)
    with Reader(tmp_path / "reader", Path(sys.prefix), tmp_path / "conf") as reader:
        do(reader, of_document(name))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_all_of_the_documents_can_be_done_with_nothing_but_the_wheel_and_its_extra(
    tmp_path: Path,
) -> None:
    clean = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", clean], check=True)
    folder = tmp_path / "reader"
    folder.mkdir()
    with Reader(folder, clean) as reader:
        do(reader, in_order(lambda step: True))
        assert reader.shell("python -c 'import holdfast; print(holdfast.__file__)'") == [
            str(next(clean.glob("lib/*/site-packages")) / "holdfast" / "__init__.py")
        ]
    for name in ON_THEIR_OWN:
        own = tmp_path / Path(name).stem
        own.mkdir()
        with Reader(own, clean) as reader:
            do(reader, of_document(name))
