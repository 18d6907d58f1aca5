"""Reach: datasets that a rule could be about, as far as their names tell.

Attributes are known only once a log is read, so a rule that asks for them reaches whatever its globs match. Rules with the
same globs are matched once and datasets with the same rules are grouped, so that ten thousand names cost little more than
their distinct answers.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence

from retention_assets.policy.globs import is_literal, matching, protecting
from retention_assets.policy.model import Datasets

_Globs = tuple[tuple[str, ...], tuple[str, ...]]


def rules_reaching(names: Sequence[str], scope: Datasets) -> list[str]:
    """Names that a scope could be about, in their order."""
    return [names[place] for place in sorted(_places(names, dict(zip(names, range(len(names)), strict=True)), _globs(scope)))]


def digests(names: Sequence[str], rules: Sequence[tuple[Datasets, str]]) -> list[str]:
    """Digest of the rules that could reach each name, whatever their order. A rule is a scope and its words."""
    alike: dict[_Globs, list[int]] = {}
    for number, (scope, _) in enumerate(rules):
        alike.setdefault(_globs(scope), []).append(number)
    place = dict(zip(names, range(len(names)), strict=True))
    member: list[list[int]] = [[] for _ in names]
    questions = list(alike)
    for question, globs in enumerate(questions):
        for at in _places(names, place, globs):
            member[at].append(question)
    known: dict[tuple[int, ...], str] = {}
    found = []
    for mine in map(tuple, member):
        if mine not in known:
            numbers = sorted(number for question in mine for number in alike[questions[question]])
            words = json.dumps([rules[number][1] for number in numbers], ensure_ascii=False)
            known[mine] = hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()
        found.append(known[mine])
    return found


def _globs(scope: Datasets) -> _Globs:
    return scope.include, scope.exclude


def _places(names: Sequence[str], place: Mapping[str, int], globs: _Globs) -> Collection[int]:
    include, exclude = globs
    found = {place[glob] for glob in include if glob in place}
    # A hold reaches wider than a policy; judging a dataset once more does no harm.
    if patterns := [glob for glob in include if not (is_literal(glob) and glob.isascii())]:
        found.update(at for at, matched in enumerate(protecting(names, patterns)) if matched)
    if found and exclude:
        order = sorted(found)
        out = matching([names[at] for at in order], exclude)
        return [at for at, is_out in zip(order, out, strict=True) if not is_out]
    return found
