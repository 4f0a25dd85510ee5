"""Files: directories as sources, part files and Delta tables as sinks."""
