"""How hard property tests try: a quick run, a check with fewer examples, and a soak run with many more."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

from soak.amounts import EXAMPLES_FOR_ONE

CHECK, QUICK, SOAK = "check", "quick", "soak"
_DEFAULT_EXAMPLES = 100
_QUICK_SHARE = 0.6
"""Of the examples that a test asks for: every run draws others, and many runs see more than one long one."""
_CHECK_SHARE = 1 / 6


def register_profiles() -> None:
    """Make the profiles known, and take the quick one unless ``--hypothesis-profile`` names another."""
    # How long an example takes says more about the machine than about the code.
    settings.register_profile(QUICK, deadline=None, max_examples=round(_DEFAULT_EXAMPLES * _QUICK_SHARE))
    # A look at everything while one works.
    settings.register_profile(CHECK, deadline=None, max_examples=round(_DEFAULT_EXAMPLES * _CHECK_SHARE))
    # New examples in every run, without the thousands that were good before.
    settings.register_profile(
        SOAK,
        deadline=None,
        database=None,
        max_examples=_DEFAULT_EXAMPLES * EXAMPLES_FOR_ONE,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(QUICK)


def tries(examples: int, *, soaked: int | None = None, **options: Any) -> settings:
    """Return settings for a share of so many examples; in a soak run for many times as many, or as many as are said."""
    profile = settings.get_current_profile_name()
    if profile == SOAK:
        examples = soaked or examples * EXAMPLES_FOR_ONE
    else:
        examples = max(1, round(examples * (_CHECK_SHARE if profile == CHECK else _QUICK_SHARE)))
    return settings(max_examples=examples, **options)
