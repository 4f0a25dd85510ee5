"""What peers of several benches share."""
