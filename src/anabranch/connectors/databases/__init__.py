"""Sinks to databases: rows and the batch they came with, in one transaction."""

from anabranch.connectors.databases.sql_sink import mariadb, postgres
from anabranch.connectors.redis.sink import redis_hashes

__all__ = ["mariadb", "postgres", "redis_hashes"]
