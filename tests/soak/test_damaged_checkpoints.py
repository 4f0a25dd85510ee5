"""Every file of a checkpoint removed, cut, flipped and emptied, one after the other."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.damaging import DAMAGES, DamagedFlow


@pytest.mark.soak
def test_no_damaged_file_makes_a_wrong_answer(spark: SparkSession, tmp_path: Path) -> None:
    begun = DamagedFlow(tmp_path / "begun", spark)
    begun.begin()
    plain = begun.copy(tmp_path / "plain")
    plain.finish()
    undisturbed = plain.results()
    outcomes: Counter[str] = Counter()
    wrong = []
    for file in begun.files():
        for how in DAMAGES:
            # Workers trust a file that they have checked once: every copy has a path of its own.
            flow = begun.copy(tmp_path / f"{how}-{file.replace('/', '-')}")
            held = flow.damage(file, how)
            try:
                outcome = flow.finish_by_advice(file, held)
            except Exception as error:
                wrong.append(f"{file} {how}: {type(error).__name__}: {error}")
            else:
                outcomes[f"{Path(file).parts[0]}: {how}: {outcome}"] += 1
                if flow.results() != undisturbed:
                    wrong.append(f"{file} {how}: {outcome}, with other results")
            shutil.rmtree(flow.folder)
    for line, count in sorted(outcomes.items()):
        print(f"{line}: {count}")
    assert not wrong, "\n".join(wrong)
