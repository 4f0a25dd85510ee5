"""What people are shown of an operator under control."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import polars as pl

from anabranch.control.decide.choosing import Standing
from anabranch.control.manual_overrides import list_settings
from anabranch.control.observe.load_sampling import ROWS
from anabranch.control.observe.loads import OperatorLoads
from anabranch.control.operators import ControlledOperator
from anabranch.model import HASH
from anabranch.model.frame_texts import key_as_text
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.scores import score_loads

_HOT_KEYS_SHOWN = 20


def describe_operator(operator: ControlledOperator) -> dict[str, Any]:
    """Return what `ctl show` says of an operator, as plain JSON data."""
    loads, phases, balancer = operator.loads, operator.phases, operator.balancer
    described: dict[str, Any] = {
        "operator": operator.facts.name,
        "strategy": balancer.routing.strategy,
        "options": {name: _plain(value) for name, value in balancer.routing.options.items()},
        "settings": list_settings(balancer.balance),
        "last_decision": balancer.last_reason,
        "pending": _pending(operator),
    }
    if phases is not None:
        table = phases.routes.table
        described |= {
            "slots": phases.routes.slots,
            "moved_keys": len(table.whole_keys()),
            "split_keys": len(table.split_keys()),
        }
        if isinstance(phases.routes.base, DrawnRoute):
            described["shape"] = phases.routes.base.label
    if loads is not None and phases is not None:
        powers = balancer.routing.powers_over(len(loads.slot_rows))
        score = score_loads(loads.slot_rows, powers)
        described |= {} if powers is None else {"powers": list(powers)}
        described |= {
            "loads": [int(rows) for rows in loads.slot_rows],
            "sampled_rows": loads.sampled_rows,
            "balance": score.balance,
            "max_over_mean": score.max_over_mean,
            "extra_time": score.extra_time,
            "hot_keys": _hot_keys(operator, loads, phases.routes),
        }
    if balancer.last_costs is not None:
        described["costs"] = balancer.last_costs.to_json()
    if operator.exchange is not None:
        described["exchange"] = asdict(operator.exchange)
    if balancer.scores is not None:
        described["choice"] = balancer.choice.strategy
        described["scores"] = {
            scored.strategy: {
                "balance": scored.score.balance,
                "max_over_mean": scored.score.max_over_mean,
                "extra_time": scored.score.extra_time,
                **_standing(balancer.choice.standings.get(scored.strategy)),
            }
            for scored in balancer.scores.ranked
        }
    return described


def _standing(standing: Standing | None) -> dict[str, Any]:
    """Return how a strategy has done so far; one that the operator's keys do not allow is not compared."""
    if standing is None:
        return {"allowed": False}
    return {"allowed": True, "smoothed": standing.smoothed, "lead_rows": standing.lead_rows}


def label_keys(sample: pl.DataFrame, keys: tuple[str, ...]) -> dict[int, str]:
    """Return the hottest keys of a sample as people read them, by hash."""
    if not keys:
        return {}
    # Ties by hash, as the hottest keys are chosen: else those shown would have no text.
    hottest = sample.sort(ROWS, HASH, descending=[True, False]).head(4 * _HOT_KEYS_SHOWN)
    texts = hottest.select(pl.concat_str([key_as_text(key, hottest.schema[key]) for key in keys], separator=", "))
    return dict(zip(hottest[HASH].to_list(), texts.to_series().to_list(), strict=True))


def _hot_keys(operator: ControlledOperator, loads: OperatorLoads, routes: Routes) -> list[dict[str, Any]]:
    if not operator.facts.key_types:
        # Rows without keys have hashes all the same, by which they are searched.
        return []
    total = max(float(loads.slot_rows.sum()), 1.0)
    hottest = sorted(loads.hot_rows.items(), key=lambda item: (-item[1], item[0]))[:_HOT_KEYS_SHOWN]
    return [
        {
            "key": operator.labels.get(key, f"{key:016x}"),
            "share": rows / total,
            "state_bytes": None if loads.sizes is None else loads.sizes.key_bytes.get(key),
            "slots": [[share.slot, share.share] for share in routes.table.owners(key)],
            **_inputs_of(loads, routes, key),
        }
        for key, rows in hottest
    ]


def _inputs_of(loads: OperatorLoads, routes: Routes, key: int) -> dict[str, Any]:
    """Return what the inputs of a join bring of a key, and which of them is copied if slots share it."""
    if loads.join is None:
        return {}
    copied = loads.join.copied_under(routes, key)
    return {
        "input_rows": [round(rows) for rows in loads.join.rows_of(key)],
        "input_bytes": [round(size) for size in loads.join.state_bytes_of(key)],
        "copied": ("left", "right")[copied] if len(routes.table.owners(key)) > 1 else None,
    }


def _plain(value: Any) -> Any:
    """Return an option of a strategy as JSON has it."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _pending(operator: ControlledOperator) -> str | None:
    if operator.phases is not None and operator.phases.earlier is not None:
        return "windows that were open before the last change end where they are"
    if operator.overrides:
        return "; ".join(override.reason for override in operator.overrides)
    return operator.proposal.reason if operator.proposal is not None else None
