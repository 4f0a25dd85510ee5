"""What it costs a flow to follow its load, and how its ways to be parallel compare."""
