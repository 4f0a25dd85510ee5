"""Replicas beside the batches: what is known of hosts, what is copied, who inherits the slots of one that is lost."""
