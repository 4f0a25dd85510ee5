"""``anabranch demo``."""
