"""What a batch may take on."""
