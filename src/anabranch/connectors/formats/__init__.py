"""Bytes and texts to columns of declared types, and back."""
