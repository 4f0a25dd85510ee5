"""The Yahoo Streaming Benchmark, from a Kafka topic, with a lookup in Redis, to Redis."""
