"""Scripts that run flows of the energy bench on hosts of a lab."""
