"""Real servers for tests: each is started on loopback, with free ports, in a temporary folder."""
