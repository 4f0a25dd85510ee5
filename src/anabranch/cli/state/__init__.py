"""``anabranch state``."""
