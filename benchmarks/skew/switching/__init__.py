"""The part of the skew bench that switches strategies while the data changes."""
