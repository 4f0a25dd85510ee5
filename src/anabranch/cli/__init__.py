"""The command ``anabranch``."""

from anabranch.cli.app import main

__all__ = ["main"]
