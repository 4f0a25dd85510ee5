"""Code in documents runs on the session that the Spark tests share."""

from __future__ import annotations

from spark.fixtures import spark

__all__ = ["spark"]
