"""Messages made and damaged by chance, read as by other means; tests/soak tries many more of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from formats import avro, properties

quick = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@quick
@given(case=avro.cases(avro.FLAT_FIELDS))
def test_flat_avro_records_are_read_as_the_specification_says(case: avro.Case, compiled: bool) -> None:
    properties.check_avro(case, compiled=compiled)


@quick
@given(case=avro.cases(avro.ALL_FIELDS))
def test_nested_avro_records_are_read_as_the_specification_says(case: avro.Case) -> None:
    properties.check_avro(case, compiled=True)
