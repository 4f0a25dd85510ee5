"""The apps bench: two applications on one machine, beside Flink and native Spark."""
