"""Kafka topics as sources."""

from anabranch.connectors.kafka.source import KafkaSource, kafka

__all__ = ["KafkaSource", "kafka"]
