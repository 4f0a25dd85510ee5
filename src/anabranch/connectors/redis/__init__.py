"""Redis: connections, and hashes as a sink."""
