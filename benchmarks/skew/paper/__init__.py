"""Parts of the skew bench after tables and figures of the papers."""
