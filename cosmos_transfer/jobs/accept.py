"""Thresholds that a clip must meet: ``edge_f1>0.5``, or a table of the same."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.metrics.evaluate import MEASURES

_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_RULE = re.compile(r"\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One metric and the bound on it."""

    metric: str
    sign: str
    bound: float

    def holds(self, value: float) -> bool:
        """Whether the value is on the right side; NaN never is."""
        return bool(_COMPARE[self.sign](value, self.bound))

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


def read_thresholds(rules: Mapping[str, str] | Iterable[str] | None) -> tuple[Threshold, ...]:
    """Thresholds from ``{"edge_f1": ">0.5"}`` or ``["edge_f1>0.5"]``.

    Raises:
        ConfigError: No such metric, or a bound that is not a comparison with a number.
    """
    if rules is None:
        return ()
    if isinstance(rules, Mapping):
        pairs = [(str(metric), str(bound)) for metric, bound in rules.items()]
    else:
        pairs = []
        for rule in rules:
            begin = re.match(r"\s*\w*", rule)
            name = begin.group() if begin else ""
            pairs.append((name.strip(), rule[len(name) :]))
    known = [measure.name for measure in MEASURES]
    found = []
    for metric, bound in pairs:
        parsed = _RULE.fullmatch(bound)
        if metric not in known or parsed is None:
            raise ConfigError(
                explain(
                    "accept",
                    expected=f"a bound such as >0.5 on one of {', '.join(known)}",
                    got=f"{metric!r}: {bound!r}",
                    do="Write, for example, edge_f1>0.5.",
                )
            )
        found.append(Threshold(metric=metric, sign=parsed[1], bound=float(parsed[2])))
    return tuple(found)


def missed(
    thresholds: Iterable[Threshold], values: Mapping[str, float], why: Mapping[str, str]
) -> tuple[str, ...]:
    """What a clip falls short of; a metric that was not measured counts as missed.

    Args:
        thresholds: What must hold.
        values: What was measured.
        why: Per metric that was not measured, the reason.
    """
    found = []
    for each in thresholds:
        if each.metric not in values:
            found.append(f"{each}: not measured ({why.get(each.metric, 'not asked for')})")
        elif not each.holds(values[each.metric]):
            found.append(f"{each}: {values[each.metric]:.3f}")
    return tuple(found)
