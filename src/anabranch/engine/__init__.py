"""One batch of a flow, without Spark: what tasks do, what the driver makes of it, and what is committed."""
