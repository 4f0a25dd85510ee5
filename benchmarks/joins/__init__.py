"""The joins bench: joins of streams by equal keys, beside those of Flink and native Spark."""
