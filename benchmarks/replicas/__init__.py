"""The replicas bench: how often a flow goes on from memory when hosts fail, by where replicas stand. Simulated."""
