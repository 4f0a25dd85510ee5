"""The operators bench: operators on text keys, beside those of native Spark."""
