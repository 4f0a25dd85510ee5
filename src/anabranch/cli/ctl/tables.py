"""The balance of a running flow, drawn: slots as bars, hot keys, what every strategy would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anabranch.cli.ctl.measures import draw_measures
from anabranch.cli.formats import draw_bar, format_bytes, format_count, format_seconds
from anabranch.cli.run.lines import describe_exchange
from anabranch.cli.tables import fits
from anabranch.model.replicas import ReplicaProgress

MOST_SLOTS_SHOWN = 32
MOST_KEYS_SHOWN = 12
MOST_DECISIONS_SHOWN = 5
BAR_WIDTH = 30
UNEVEN = 1.05
"""From this ratio to the mean on, a slot is drawn in yellow, and from twice the mean on in red."""


def draw_balance(shown: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the parts of what ``show`` prints; whatever the flow does not know yet is left out."""
    batch = shown.get("batch", -1)
    yield Text("no batch has run yet" if batch < 0 else f"after batch {batch}", style="dim")
    if not shown["operators"]:
        yield Text("the flow has no stateful operator, so there is nothing to balance")
    for described in shown["operators"]:
        yield Text()
        yield _draw_title(described)
        loads = _draw_loads(described.get("loads", []), described.get("powers"), described.get("homes", []))
        parts = [*loads, *_draw_hot_keys(described.get("hot_keys", []))]
        parts += _draw_scores(described.get("scores", {}), described.get("choice", described["strategy"]))
        parts += [*_draw_exchange(described.get("exchange")), *_draw_words(described)]
        parts += _draw_decisions(shown.get("decisions", []), described["operator"])
        for part in parts:
            yield Padding(part, (0, 0, 0, 2), expand=False)
    yield from _draw_elasticity(shown.get("elasticity"))
    yield from _draw_replicas(shown.get("replicas"))
    yield from _draw_energy(shown.get("energy"), shown.get("drawn"))
    yield from draw_measures(shown.get("measures"))


def _draw_elasticity(told: Mapping[str, Any] | None) -> Iterator[RenderableType]:
    if told is None:
        return
    wanted = "none wanted yet" if told["wanted"] is None else f"{told['wanted']} wanted"
    facts = [f"{wanted} of {told['min_executors']} to {told['max_executors']}"]
    if "utilisation" in told:
        facts.append(f"what comes takes {told['utilisation']:.0%} of their cores")
    facts.append(f"{told['reconfigurations']} reconfigurations")
    yield Text()
    yield Text.assemble(("executors", "bold"), f" · {' · '.join(facts)}")
    if "reason" in told:
        yield Padding(Text(told["reason"], style="dim"), (0, 0, 0, 2), expand=False)


def _draw_replicas(told: Mapping[str, Any] | None) -> Iterator[RenderableType]:
    if told is None:
        return
    stand = ReplicaProgress.from_json(told)
    yield Text()
    yield Text.assemble(("replicas", "bold"), f" · {replace(stand, problem='').describe()}")
    if stand.problem:
        yield Padding(Text(stand.problem, style="yellow"), (0, 0, 0, 2), expand=False)


def _draw_energy(told: Mapping[str, Any] | None, drawn: Mapping[str, str] | None) -> Iterator[RenderableType]:
    if told is None and drawn is None:
        return
    facts = ["no host sleeps"]
    if told is not None:
        facts = [f"by {told['policy']}", f"{told['hosts']} hosts awake, {told['asleep']} asleep"]
        if "latency_seconds" in told:
            latency = told["latency_seconds"]
            found = "more and more comes than is done" if latency is None else f"latency {latency:.2g} s"
            facts.append(f"{found}, at most {told['bound_seconds']:g} s wanted")
        facts.append(f"{told['changes']} changes")
    yield Text()
    yield Text.assemble(("energy", "bold"), f" · {' · '.join(facts)}")
    if told is not None and "reason" in told:
        yield Padding(Text(told["reason"], style="dim"), (0, 0, 0, 2), expand=False)
    for name, figure in (drawn or {}).items():
        yield Padding(Text(f"{name}: {figure}"), (0, 0, 0, 2), expand=False)


def _draw_title(described: Mapping[str, Any]) -> Text:
    options = [f"{name}={_write_option(value)}" for name, value in described.get("options", {}).items()]
    facts = [" ".join((f"strategy {described['strategy']}", *options))]
    if described.get("choice", described["strategy"]) != described["strategy"]:
        facts[0] += f", now {described['choice']}"
    if "slots" in described:
        facts.insert(0, f"{described['slots']} slots")
    if "max_over_mean" in described:
        facts.append(f"max/mean {described['max_over_mean']:.3f}")
        facts.append(f"balance {described['balance']:.3f}")
        facts.append(f"extra time {100 * described['extra_time']:.1f} %")
    return Text.assemble((described["operator"], "bold"), f" · {' · '.join(facts)}")


def _write_option(value: Any) -> str:
    return ",".join(f"{part:g}" for part in value) if isinstance(value, list) else str(value).lower()


def _draw_loads(
    loads: Sequence[float], powers: Sequence[float] | None, homes: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    if not loads:
        return
    home_of = {home["slot"]: _name_home(home) for home in homes}
    shares = powers if powers is not None else [1.0] * len(loads)
    means = [sum(loads) * share / sum(shares) for share in shares]
    largest = max(loads)
    fullest = sorted(range(len(loads)), key=lambda slot: (-loads[slot], slot))[:MOST_SLOTS_SHOWN]
    of_what = "of mean" if powers is None else "of share"
    titles = ("slot", "load", "", of_what, *(("home",) if home_of else ()))
    table = Table(*titles, box=None, header_style="cyan", padding=(0, 1, 0, 0))
    for column in (0, 1, 3):
        table.columns[column].justify = "right"
    for slot in sorted(fullest):
        ratio = loads[slot] / means[slot] if means[slot] > 0 else 1.0
        colour = "red" if ratio >= 2 else "yellow" if ratio > UNEVEN else "green"
        bar = Text(draw_bar(loads[slot], largest, BAR_WIDTH), style=colour)
        home = [Text(home_of.get(slot, ""))] if home_of else []
        table.add_row(str(slot), format_count(loads[slot]), bar, f"{ratio:.2f}", *home)
    yield table
    if len(loads) > len(fullest):
        yield Text(f"and {len(loads) - len(fullest)} slots with less", style="dim")


def _name_home(home: Mapping[str, Any]) -> str:
    """Return where a slot runs, and whether people said so."""
    return f"{home['host']}, executor {home['executor']}" + (" (by ctl)" if home.get("pinned") else "")


class HotKeys:
    """Hot keys with their shares and slots; where that is too wide, each key in a line of its own, whole."""

    def __init__(self, hot_keys: Sequence[Mapping[str, Any]]) -> None:
        self._rows = [(str(hot["key"]), f"{100 * hot['share']:.1f} %", _describe_slots(hot)) for hot in hot_keys]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table("hot key", "share", "slots", box=None, header_style="cyan", padding=(0, 1, 0, 0))
        table.columns[1].justify = "right"
        for key, share, slots in self._rows:
            table.add_row(Text(key), share, Text(slots))
        if fits(table, console, options):
            yield table
            return
        yield Text("hot keys", style="bold cyan")
        for key, share, slots in self._rows:
            yield Text(key, overflow="fold")
            yield Padding(Text(f"{share}, slots {slots}"), (0, 0, 0, 2), expand=False)


def _describe_slots(hot: Mapping[str, Any]) -> str:
    """Return where a hot key is, and of a join, what both inputs bring of it."""
    where = _name_slots(hot["slots"])
    if "input_rows" not in hot:
        return where
    left, right = (format_count(rows) for rows in hot["input_rows"])
    copied = f", {hot['copied']} copied" if hot["copied"] else ""
    return f"{where}  {left} left, {right} right{copied}"


def _name_slots(owners: Sequence[tuple[int, float]]) -> str:
    if len(owners) > 1:
        return ", ".join(f"{slot} ({100 * share:.0f} %)" for slot, share in owners)
    # A key that is nowhere else is where its bucket is.
    return str(owners[0][0]) if owners else "home"


def _draw_hot_keys(hot_keys: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if not hot_keys:
        return
    yield Text(" ")
    yield HotKeys(hot_keys[:MOST_KEYS_SHOWN])
    if len(hot_keys) > MOST_KEYS_SHOWN:
        yield Text(f"and {len(hot_keys) - MOST_KEYS_SHOWN} more, in --json", style="dim")


def _draw_scores(scores: Mapping[str, Mapping[str, float]], current: str) -> Iterator[RenderableType]:
    if not scores:
        return
    names = ("strategy", "max/mean", "balance", "extra time", "lead in rows")
    table = Table(*names, box=None, header_style="cyan", padding=(0, 1, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, score in sorted(scores.items(), key=lambda item: (item[1]["max_over_mean"], item[0])):
        figures = (f"{score['max_over_mean']:.3f}", f"{score['balance']:.3f}", f"{100 * score['extra_time']:.1f} %")
        lead = format_count(score.get("lead_rows", 0)) if score.get("allowed", True) else "keys stay whole"
        table.add_row(Text(name), *figures, lead, style="bold" if name == current else None)
    yield Text(" ")
    yield table


def _describe_costs(costs: Mapping[str, Any] | None) -> str:
    if costs is None:
        return ""
    facts = [f"{format_bytes(costs['moved_bytes'])} of state"]
    if "table_rows" in costs:
        facts.insert(0, f"{format_count(costs['table_rows'])} rows of the routing table")
        facts.append(f"{format_count(costs['split_load'])} rows a batch of split keys")
    if costs.get("planning_seconds") is not None:
        facts.insert(0, f"planned in {1000 * costs['planning_seconds']:.1f} ms")
    return ", ".join(facts)


def _draw_exchange(exchange: Mapping[str, Any] | None) -> Iterator[RenderableType]:
    """Yield what the last batch's exchange did, and what each way was found to cost, if that is weighed."""
    if exchange is None:
        return
    done = describe_exchange(exchange["way"], exchange["rows"], exchange["sent_rows"], exchange["sent_bytes"])
    times = " · ".join(
        f"{name} {format_seconds(exchange[f'{name}_seconds'])}"
        for name in ("merge", "send", "hold")
        if exchange[f"{name}_seconds"]
    )
    yield Text(" ")
    yield Text.assemble(("exchange  ", "cyan"), done, (f"  processor time: {times}" if times else "", "dim"))
    yield Text.assemble((f"{exchange['next_way']} next: ", "bold"), exchange["reason"])
    if not exchange["costs"]:
        return
    table = Table("exchange", "s a million rows", box=None, header_style="cyan", padding=(0, 1, 0, 0))
    table.columns[1].justify = "right"
    for way, cost in sorted(exchange["costs"].items(), key=lambda item: item[1]):
        table.add_row(way, f"{cost:.3f}", style="bold" if way == exchange["next_way"] else None)
    yield table


def _draw_words(described: Mapping[str, Any]) -> Iterator[RenderableType]:
    settings = described.get("settings", {})
    away = {"moved": described.get("moved_keys", 0), "split": described.get("split_keys", 0)}
    lines = {
        "slots": described.get("shape"),
        "keys": ", ".join(f"{format_count(count)} {how}" for how, count in away.items() if count),
        "settings": "  ".join(f"{name}={value}" for name, value in settings.items()),
        "looked at": f"{format_count(described['sampled_rows'])} rows of the batch"
        if "sampled_rows" in described
        else "",
        "last decision": described.get("last_decision"),
        "its costs": _describe_costs(described.get("costs")),
        "next": described.get("pending"),
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    for name, text in lines.items():
        if text:
            grid.add_row(name, Text(str(text)))
    if grid.row_count:
        yield Text(" ")
        yield grid


def _draw_decisions(decisions: Sequence[Mapping[str, Any]], operator: str) -> Iterator[RenderableType]:
    """Yield the last decisions about an operator, of all runs, with what was found of them."""
    own = [one for one in decisions if one["operator"] in (operator, "all operators")][-MOST_DECISIONS_SHOWN:]
    if not own:
        return
    grid = Table.grid(padding=(0, 2))
    for title in ("after batch", "by", "max/mean", "decided"):
        grid.add_column(no_wrap=title != "decided", justify="right" if title == "after batch" else "left")
    grid.add_row(*(Text(title, style="cyan") for title in ("after batch", "by", "max/mean", "decided")))
    for one in own:
        ratios = [one.get(f"imbalance_{when}") for when in ("before", "after")]
        before, after = ("…" if ratio is None else f"{ratio:.3f}" for ratio in ratios)
        told = "" if ratios == [None, None] else f"{before} → {after}"
        grid.add_row(str(one["batch"]), one["sender"], told, Text(f"{one['action']}: {one['reason']}"))
    yield Text(" ")
    yield grid
