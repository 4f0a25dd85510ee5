"""Flows that are files: YAML and XML that name Python code, and Python itself."""
