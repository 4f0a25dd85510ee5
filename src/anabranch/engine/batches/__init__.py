"""What the driver does for one batch: what is read, under which routes, by which job, and what is committed."""
