"""``anabranch run``, and how a run is shown."""
