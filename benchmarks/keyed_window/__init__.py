"""The keyed-window bench: one query, all systems, several file formats."""
