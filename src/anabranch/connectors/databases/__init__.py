"""Sinks to databases: rows and the batch they came with, in one transaction."""

from anabranch.connectors.databases.redis_hashes import redis_hashes
from anabranch.connectors.databases.sql_sink import mariadb, postgres

__all__ = ["mariadb", "postgres", "redis_hashes"]
