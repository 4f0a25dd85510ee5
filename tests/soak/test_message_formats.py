"""Messages made and damaged by chance, many of them: ``ANABRANCH_SOAK_MESSAGES`` says how many examples a test has."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from formats import avro, properties

long = settings(
    max_examples=int(os.environ.get("ANABRANCH_SOAK_MESSAGES", "20000")), suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@long
@given(case=avro.cases(avro.FLAT_FIELDS))
def test_flat_avro_records_are_read_as_the_specification_says(case: avro.Case, compiled: bool) -> None:
    properties.check_avro(case, compiled=compiled)


@long
@given(case=avro.cases(avro.ALL_FIELDS))
def test_nested_avro_records_are_read_as_the_specification_says(case: avro.Case) -> None:
    properties.check_avro(case, compiled=True)
