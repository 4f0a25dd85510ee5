"""How much a soak run tries, and which: an hour on two cores as it stands.

``ANABRANCH_SOAK_SCALE`` multiplies every amount (8 fills a night, 0.1 shows that everything still runs);
``ANABRANCH_SOAK_SEED`` makes a run the same as an earlier one, which printed its own.
"""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("ANABRANCH_SOAK_SEED", random.SystemRandom().randrange(2**32)))
_SCALE = float(os.environ.get("ANABRANCH_SOAK_SCALE", "1"))


def _scaled(amount: int) -> int:
    return max(1, round(amount * _SCALE))


# Of examples of each property test, for one of a quick run.
EXAMPLES_FOR_ONE = _scaled(10)
# Of drivers, in each test that kills them.
KILLS = _scaled(40)
KILLS_A_RUN = 20
# Of disturbances, for each kind of sink.
SECONDS_A_KIND = _scaled(15)
# Of random flows through Spark, over all kinds of flow.
FLOWS = _scaled(100)
# Of long streams without Spark, over all operators.
STREAMS = _scaled(300)
# Of each kind of state, and of loops.
STATE_EXAMPLES = _scaled(200)
# Of lines, and of messages, of each kind.
LINE_EXAMPLES = _scaled(4000)
MESSAGE_EXAMPLES = _scaled(4000)
# Of flows whose hosts are disturbed, played in one process.
HOSTED_FLOWS = _scaled(400)
# Of flows on the hosts of a lab that are disturbed.
LAB_SEEDS = _scaled(12)
# Of Kafka topics that every reader reads.
TOPICS = _scaled(20)
# Of keys that come once, for each kind of flow; more of them show nothing more.
ONCE_ONLY_KEYS = min(10_000_000, _scaled(10_000_000))
# Of different keys among which hot ones are found; more of them show nothing more, and fewer than this little.
DIFFERENT_KEYS = max(1_000_000, min(10_000_000, _scaled(10_000_000)))
# Of batches that are told to one driver; more of them show nothing more.
TOLD_BATCHES = min(1_000_000, max(100_000, _scaled(1_000_000)))
# Of streams whose strategy must stay, each for ten thousand batches, and of streams that change.
STEADY_STREAMS = _scaled(2)
CHANGING_STREAMS = _scaled(2)
# Of streams whose keys change their heat, under any strategy, planner and trigger.
SKEWED_STREAMS = _scaled(40)
# Of event time, of two streams that are a factor of ten apart in speed.
ALIGNED_SECONDS = max(300, _scaled(1_000))
