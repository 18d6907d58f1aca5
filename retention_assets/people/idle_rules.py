"""Find rules without effect: holds, excludes or policies whose names match no dataset or transaction of the last evaluation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import did_you_mean
from retention_assets.frames.log import Log, holds_dataset
from retention_assets.frames.verdicts.candidate_marks import columns_for
from retention_assets.frames.verdicts.kept_rows import retained_by
from retention_assets.ledger import Ledger
from retention_assets.pipeline.stage import Source, by_folder, read_output, read_transactions
from retention_assets.policy.globs import is_literal, matching, protecting
from retention_assets.policy.language import Policies
from retention_assets.policy.model import Keeper, RetainRule
from retention_assets.policy.sentences import count

_ASSET = "candidate_marks"
# names that are compared for similarity; comparing takes long
_MOST_COMPARED = 10_000
# ids compared with globs at a time
_AT_ONCE = 100_000
_DATASETS_AT_ONCE = 500


def idle_rules(policies: Policies, ledger: Ledger | None) -> list[str]:
    """A sentence for each hold, exclude and policy that matches nothing in the last evaluation."""
    if not ledger:
        return []
    with ledger.database.one_moment():
        folders, aside = ledger.publications.named(_ASSET), {row.dataset for row in ledger.trash.sums()}
        at = ledger.clock.present(None)
        recorded = ledger.holds.recorded(at)
    if not folders:
        return []
    names = sorted(folders)
    faults: list[str] = []
    for policy in policies.policies:
        include, exclude = policy.datasets.include, policy.datasets.exclude
        if not any(matching(names, include)):
            faults.append(f"Policy {policy.name} is about no dataset: nothing matches {_listed(include, names)}")
        idle = (glob for glob in exclude if not any(protecting(names, (glob,))))
        faults += [f"Policy {policy.name} excludes nothing by {_listed((glob,), names)}" for glob in idle]
    for keeper in (*policies.holds, *recorded.placed, *recorded.purged):
        faults += _idle(keeper, names, folders, ledger, at, aside)
    return list(dict.fromkeys(faults))


def _idle(
    keeper: Keeper, names: Sequence[str], folders: Mapping[str, str], ledger: Ledger, at: datetime, aside: Collection[str]
) -> Iterator[str]:
    nothing = f"Hold {keeper.name or '(without a name)'} holds nothing"
    if isinstance(keeper, RetainRule):
        nothing = f"Retain rule {keeper.name} retains nothing"
    datasets, in_trash = ([name for name in among if holds_dataset(keeper, name, None)] for among in (names, aside))
    if not datasets and not in_trash:
        yield f"{nothing}: no dataset matches {_listed(keeper.datasets.include, names)}"
    elif isinstance(keeper, RetainRule):
        logs = ledger.publications.named("transaction_log")
        # what is set aside can't be asked
        if not in_trash and not _retains(keeper, {name: logs[name] for name in datasets if name in logs}, at):
            yield f"{nothing}: no transaction of {count(len(datasets), 'dataset')} meets its lines."
    else:
        # it may be in no log any more, and is held all the same
        set_aside = [mark.transaction for mark in ledger.trash.marks(in_trash)] if keeper.transactions else []
        for glob in keeper.transactions or ():
            near: list[str] = []
            is_aside = any(protecting(set_aside, (glob,)))
            if not (is_aside or _has_transaction(glob, {name: folders[name] for name in datasets}, near)):
                yield f"{nothing} by {_listed((glob,), near)}"


def _retains(rule: RetainRule, logs: Mapping[str, str], at: datetime) -> bool:
    for folder, datasets in by_folder(logs).items():
        for first in range(0, len(datasets), _DATASETS_AT_ONCE):
            names = datasets[first : first + _DATASETS_AT_ONCE]
            try:
                rows = read_transactions([Source(folder)], names, columns_for((), keepers=[rule]))
                about = read_output(folder, "datasets", names)
            except (OSError, pa.ArrowInvalid):
                # Housekeeping removed the folder: the answer is unknown.
                return True
            if retained_by([rule], Log(rows, about), at).any():
                return True
    return False


def _has_transaction(glob: str, folders: Mapping[str, str], near: list[str]) -> bool:
    # adds some of the ids that were read to `near`
    for folder, datasets in by_folder(folders).items():
        try:
            ids = read_output(folder, _ASSET, datasets, ["transaction"])["transaction"]
        except (OSError, pa.ArrowInvalid):
            # Housekeeping removed the folder: the answer is unknown.
            return True
        if pc.any(pc.equal(ids, glob)).as_py():
            return True
        if not (is_literal(glob) and glob.isascii()):
            for at in range(0, len(ids), _AT_ONCE):
                if any(protecting(ids.slice(at, _AT_ONCE).to_pylist(), (glob,))):
                    return True
        near += ids.slice(0, max(0, _MOST_COMPARED - len(near))).to_pylist()
    return False


def _listed(globs: Sequence[str], names: Sequence[str]) -> str:
    near = did_you_mean(globs[0], names[:_MOST_COMPARED], most=1) if len(globs) == 1 else None
    return f"{', '.join(repr(glob) for glob in globs)}." + (f" {near}" if near else "")
