"""Workloads, peers, answer checks and reports: every claim about speed is made here, after equal answers."""
