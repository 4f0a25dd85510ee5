"""The systems that run this bench, each a script in a process of its own."""
