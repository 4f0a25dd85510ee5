"""What is to change, and why: loads in, frozen data out; no lock, no log and no clock of its own."""
