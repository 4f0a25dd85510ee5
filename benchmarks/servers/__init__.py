"""Servers that benches and tests start for themselves: on loopback, at free ports, in a folder of their own."""
