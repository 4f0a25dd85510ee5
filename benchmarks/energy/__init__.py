"""The energy bench: which hosts may sleep, and what that saves."""
