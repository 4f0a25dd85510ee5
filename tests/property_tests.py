"""How hard property tests try: a quick run, a check with fewer examples, and a soak run with many more."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

from soak.amounts import EXAMPLES_FOR_ONE

CHECK, QUICK, SOAK = "check", "quick", "soak"
_QUICK_EXAMPLES_FOR_ONE = 6


def register_profiles() -> None:
    """Make the profiles known, and take the quick one unless ``--hypothesis-profile`` names another."""
    # How long an example takes says more about the machine than about the code.
    settings.register_profile(QUICK, deadline=None)
    # A look at everything while one works.
    few = settings.get_profile(QUICK).max_examples // _QUICK_EXAMPLES_FOR_ONE
    settings.register_profile(CHECK, deadline=None, max_examples=few)
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
    profile = settings.get_current_profile_name()
    if profile == SOAK:
        examples = soaked or examples * EXAMPLES_FOR_ONE
    elif profile == CHECK:
        examples = max(1, examples // _QUICK_EXAMPLES_FOR_ONE)
    return settings(max_examples=examples, **options)
