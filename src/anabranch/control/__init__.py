"""The loop between batches: observe, decide, and what people tell a flow while it runs."""
