"""Whether state and memory of an interval join stay as large as its window, however many rows come."""
