"""How hard property tests try: a quick run, and a soak run of the same tests with many more examples."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

from soak.amounts import EXAMPLES_FOR_ONE

QUICK, SOAK = "quick", "soak"


def register_profiles() -> None:
    """Make both profiles known, and take the quick one unless ``--hypothesis-profile`` names the other."""
    # How long an example takes says more about the machine than about the code.
    settings.register_profile(QUICK, deadline=None)
    # New examples in every run, without the thousands that were good before.
    settings.register_profile(
        SOAK,
        deadline=None,
        database=None,
        max_examples=settings.get_profile(QUICK).max_examples * EXAMPLES_FOR_ONE,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(QUICK)


def tries(examples: int, *, soaked: int | None = None, **options: Any) -> settings:
    """Return settings for so many examples in a quick run; in a soak run many times as many, or as many as are said."""
    if settings.get_current_profile_name() == SOAK:
        examples = soaked or examples * EXAMPLES_FOR_ONE
    return settings(max_examples=examples, **options)
