"""Tables to look rows up in: Redis, SQL databases, Parquet files, frames; and the cache that every worker keeps."""

from anabranch.connectors.lookups.cache import TableCache
from anabranch.connectors.lookups.frames import frame_table, parquet_table
from anabranch.connectors.lookups.redis_keys import redis_table
from anabranch.connectors.lookups.sql import sql_table

__all__ = ["TableCache", "frame_table", "parquet_table", "redis_table", "sql_table"]
