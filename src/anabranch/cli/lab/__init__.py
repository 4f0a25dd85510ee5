"""``anabranch lab``."""
