"""The engine: flows as batches of Spark jobs."""
