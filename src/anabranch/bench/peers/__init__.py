"""The systems that run the same workload, each a script in a process of its own."""
