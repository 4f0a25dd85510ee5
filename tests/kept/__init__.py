"""Checkpoints that earlier versions wrote, whole, with their inputs and results: they must go on."""
