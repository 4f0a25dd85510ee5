"""Formats of messages, read by other means than the library's, and messages made by chance."""
