"""A source of files that an enumerator on the driver hands to regions, split by split."""

from holdfast.regions.splits.enumerator import SplitEnumerator
from holdfast.regions.splits.file_split import FileSplit
from holdfast.regions.splits.file_splits import FileSplits
from holdfast.regions.splits.reader import SplitReader

__all__ = ["FileSplit", "FileSplits", "SplitEnumerator", "SplitReader"]
