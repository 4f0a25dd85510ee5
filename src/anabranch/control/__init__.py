"""The loop between batches, to be read in the order of its steps.

``observe/``: what slots see of their load, and what the driver makes of it. ``decide/``: loads in, a proposal out.
``apply``: proposals become new routes at a batch boundary. ``loop`` puts the three together for the operators of a flow
(``facts``, ``operators``), with what people tell it (``commands``, ``manual_overrides``); a ``Decision`` comes out.
None of these has a lock, a log, a thread or a clock: ``rebalancer`` is the shell that does, ``listening`` the thread
that waits for commands.
"""
