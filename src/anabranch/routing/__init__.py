"""Key → hash → slot: base routes, the routing table over them, row splitters, and the strategies that choose."""

from anabranch.routing.bases.base_routes import (
    BaseRoute,
    BucketRoute,
    ModuloRoute,
    RingRoute,
    WeightRoute,
    base_from_json,
    base_route,
    base_to_json,
)
from anabranch.routing.bases.drawn import BipartiteRoute, GridRoute
from anabranch.routing.bases.partitions import PartitionRoute
from anabranch.routing.bases.ranges import RangeRoute
from anabranch.routing.bases.ring import resize_map, ring_map
from anabranch.routing.hashing import buckets_of, hash_keys, slots_of
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import (
    ConsistentHash,
    Hash,
    Modulo,
    Ranges,
    Strategy,
    WeightHash,
    make_strategy,
    strategy,
    strategy_names,
)
from anabranch.routing.strategies.choices import DChoices, PartialKeyGrouping, WChoices
from anabranch.routing.strategies.coordinated import LeastCount, LeastKey, WeightRandom
from anabranch.routing.strategies.joined import Bipartite, BipartiteInSix, Grid, Matrix
from anabranch.routing.strategies.scores import Score, Scores, StrategyScore, score_all, score_loads
from anabranch.routing.strategies.splitters import ChoiceSplitter, RowSplitter, row_splitter

__all__ = [
    "BaseRoute",
    "Bipartite",
    "BipartiteInSix",
    "BipartiteRoute",
    "BucketRoute",
    "ChoiceSplitter",
    "ConsistentHash",
    "DChoices",
    "Grid",
    "GridRoute",
    "Hash",
    "KeyBatch",
    "KeySample",
    "LeastCount",
    "LeastKey",
    "Matrix",
    "Modulo",
    "ModuloRoute",
    "PartialKeyGrouping",
    "PartitionRoute",
    "RangeRoute",
    "Ranges",
    "RingRoute",
    "Routes",
    "RowSplitter",
    "Score",
    "Scores",
    "Strategy",
    "StrategyScore",
    "WChoices",
    "WeightHash",
    "WeightRandom",
    "WeightRoute",
    "base_from_json",
    "base_route",
    "base_to_json",
    "buckets_of",
    "hash_keys",
    "make_strategy",
    "resize_map",
    "ring_map",
    "row_splitter",
    "score_all",
    "score_loads",
    "slots_of",
    "strategy",
    "strategy_names",
]
