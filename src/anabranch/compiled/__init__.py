"""Loops that are compiled to machine code. Importing one of these modules takes as long as importing Numba."""
