"""Hosts, wires and a standalone cluster on one machine."""
