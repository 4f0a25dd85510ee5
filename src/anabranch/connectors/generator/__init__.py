"""Generated streams, and how often each of their keys comes."""
