"""The values of messages: JSON, Avro, Protobuf."""
