"""Base routes: where every key goes that the routing table does not name."""
