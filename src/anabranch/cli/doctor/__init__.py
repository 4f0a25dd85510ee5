"""``anabranch doctor``."""
