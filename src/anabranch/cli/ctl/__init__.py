"""``anabranch ctl``."""
