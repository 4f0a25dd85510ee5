"""How commands reach a running flow: files in its checkpoint, always; messages through Redis, where it is set up."""
