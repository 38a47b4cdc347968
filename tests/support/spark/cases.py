"""All cases of the operator matrix, by name."""

from __future__ import annotations

from support.spark.group_state_cases import GROUP_STATE_CASES
from support.spark.operator_cases import SQL_CASES
from support.spark.transform_with_state_cases import TRANSFORM_WITH_STATE_CASES

CASES = SQL_CASES | GROUP_STATE_CASES | TRANSFORM_WITH_STATE_CASES
