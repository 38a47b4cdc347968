"""What isolation costs: nothing while a query is healthy, and little in a batch that fails."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.spark.commands import with_settings
from support.spark.isolation_runs import found
from support.spark.mini_hdfs import MiniHdfs
from support.spark.object_stores import S3Server
from support.spark.queries import STATE

pytestmark = pytest.mark.timeout(900)

#: Nothing but batches makes requests. Spark's thread that deletes old log entries lists their
#: folders as often as it gets to, so each batch deletes its own.
RESTS = (
    f"--conf={STATE}maintenanceInterval=1h",
    "--conf=spark.sql.streaming.asyncLogPurge.enabled=false",
)
#: Parts of names that no other run has.
UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16}-[0-9a-f]{8}")


@pytest.mark.full
def test_a_healthy_query_makes_no_request_and_writes_no_byte_more(
    hdfs: MiniHdfs, tmp_path: Path
) -> None:
    requests: dict[str, Counter[str]] = {}
    sizes = {}
    # Spark's own files have the names of input files, so both have names of one length.
    for name, kind in (("plain", "good/off"), ("alone", "good")):
        # Each has a folder of its own that is not there yet: Spark lists one that is.
        root = f"/{tmp_path.name}-{name}"
        checkpoint = f"{hdfs.uri}{root}/checkpoint"
        hdfs.requests()
        found(tmp_path / name, *RESTS, "--checkpoint", checkpoint, f"{kind}:0-8")
        # Other tests use this HDFS as well.
        own = (one.replace(root, "") for one in hdfs.requests()[1] if root in one)
        requests[name] = Counter(UNIQUE.sub("unique", one) for one in own)
        sizes[name] = sum(hdfs.files(checkpoint).values())
    # A run looks once whether something is parked when it begins, and once in its end.
    assert requests["alone"] - requests["plain"] == {"listStatus /checkpoint/isolation null": 2}
    # Rows come in any order, which compression sees. A marker has 160 bytes at least.
    assert abs(sizes["alone"] - sizes["plain"]) < 80


@pytest.mark.full
def test_a_batch_that_fails_costs_a_put_and_the_reads_of_its_attempts(
    helpers: Path, s3: S3Server, tmp_path: Path
) -> None:
    requests: dict[str, Counter[str]] = {}
    for program in ("good", "bad"):
        store = s3.store(f"failing-{program}")
        variables = with_settings(store.settings, store.environment)
        before = s3.requests()
        found(
            tmp_path / program,
            *(*RESTS, "--checkpoint", store.uri, f"{program}:0-5"),
            variables=variables,
        )
        requests[program] = s3.requests() - before
    more = requests["bad"] - requests["good"]
    failed = int((tmp_path / "bad" / "failed.txt").read_text())
    parked = 3
    assert more["PutObject"] == parked, requests
    # Failed and parking attempts open the files of one state and of what is parked already.
    reads = ("HeadObject", "GetObject")
    assert sum(more[kind] for kind in reads) <= 4 * (failed + parked), requests
    assert set(more) <= {"PutObject", *reads}, requests
