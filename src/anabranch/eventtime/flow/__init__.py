"""A flow's time between manifest, batch and report. Read it as time flows, from where rows are looked at.

``time_guard``: no row has a time that cannot be. ``slot_lateness``: what tasks see beside ``eventtime.observations``.
``reported``: what they tell. ``in_batch_watermark``: the flow's watermark while a batch runs. ``flow_time``: the same
when it is over, and in the manifest. ``operator_times``: the time that every operator runs under, and its own clocks.
``alignment``: sources that wait for others to catch up.
"""
