"""Each suite of Spark that has to do with state is run, or left out for a reason."""

from __future__ import annotations

import zipfile

import holdfast
from support.spark import spark_suites
from support.spark.class_files import ClassFile, parse
from support.spark.stateful_suites import left_out, stateful, unaccounted


def a_class(name: str, *texts: str, parent: str = "Object", abstract: bool = False) -> ClassFile:
    return ClassFile(f"a/{name}", (f"a/{parent}",), abstract, frozenset(texts))


def test_a_class_file_says_what_it_names() -> None:
    jar = next(path for path in holdfast.plugin_jars(spark="4.2") if "spark-4.2" in path.name)
    with zipfile.ZipFile(jar) as archive:
        provider = parse(archive.read("io/holdfast/spark/HoldfastStateStoreProvider.class"))
        inner = [name for name in archive.namelist() if "$" in name and name.endswith(".class")]
        others = [parse(archive.read(name)) for name in inner]
    assert provider.name == "io/holdfast/spark/HoldfastStateStoreProvider"
    assert "org/apache/spark/sql/execution/streaming/state/StateStoreConf" in provider.texts
    assert not provider.abstract
    assert [other.name for other in others] == [name.removesuffix(".class") for name in inner]
    assert "java/lang/Record" in {parent for other in others for parent in other.parents}


def test_a_suite_is_one_of_state_by_what_it_or_its_parts_or_its_superclass_names() -> None:
    classes = [
        a_class("OpensStoresSuite", "a/b/StateStoreConf"),
        a_class("PartsSuite"),
        a_class("PartsSuite$$anon$1", "a/b/StatefulProcessor"),
        a_class("CommonSuite", "a/b/StateStoreConf", abstract=True),
        a_class("InheritsSuite", parent="CommonSuite"),
        a_class("CountsSuite", "a/b/MemoryStream", "groupBy"),
        a_class("CopiesSuite", "a/b/MemoryStream", "select"),
        a_class("BatchSuite", "groupBy"),
        # What every suite of queries has above it.
        a_class("StreamTest", "a/b/StateStoreConf"),
        a_class("QueriesSuite", parent="StreamTest"),
        a_class("StateStoreHelper", "a/b/StateStoreConf"),
    ]
    assert stateful(classes) == {"OpensStoresSuite", "PartsSuite", "InheritsSuite", "CountsSuite"}


def test_the_reason_of_every_suite_is_read() -> None:
    text = '[[suites]]\nwhy = "no store"\nnames = ["ASuite", "BSuite"]\n'
    assert left_out(text) == {"ASuite": "no store", "BSuite": "no store"}


def test_a_suite_in_neither_list_and_one_that_is_not_there_are_errors() -> None:
    assert unaccounted({"ASuite", "BSuite"}, run=["ASuite"], left={"BSuite": "no store"}) == []
    said = unaccounted({"ASuite", "BSuite"}, run=["ASuite"], left={"CSuite": "no store"})
    assert [error.partition(":")[0] for error in said] == ["BSuite", "CSuite"]


def test_no_suite_is_run_and_left_out() -> None:
    left = spark_suites.left_out()
    assert left
    assert set(left).isdisjoint(spark_suites.suites())
