"""Kafka topics as sources."""

from anabranch.connectors.kafka_topics.source import KafkaSource, kafka

__all__ = ["KafkaSource", "kafka"]
