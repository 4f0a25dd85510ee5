"""Key → hash → bucket → slot."""

from anabranch.routing.hashing import buckets_of, hash_keys, slots_of

__all__ = ["buckets_of", "hash_keys", "slots_of"]
