"""Programs that the replicas bench starts."""
