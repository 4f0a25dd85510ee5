"""The planners bench: plans for millions of skewed keys."""
