"""Which datasets may have folders in, around or instead of those of a dataset.

Belongs here: the patterns of all datasets as a tree, worked out once for a version of the log and asked about each dataset.
Names with a / and literals in the template `data` make folders nest; disks that fold case make one of two.
Does not belong here: which transactions it is about (ownership.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from retention_assets.stores.files.log import LogAnswer
from retention_assets.stores.files.paths import TRANSACTION, Folder, FolderLayout


@dataclass(eq=False)
class FolderTree:
    """A place below the root: the datasets whose pattern ends here, and what is below it, by the next segment."""

    datasets: list[str] = field(default_factory=list)
    below: dict[str, "FolderTree"] = field(default_factory=dict)
    # Of those below the ones whose segment can be any transaction.
    anything: list["FolderTree"] = field(default_factory=list)

    def add(self, dataset: str, pattern: Folder) -> None:
        """A dataset and its pattern."""
        here = self
        for segment in pattern:
            if segment not in here.below:
                here.below[segment] = FolderTree()
                if TRANSACTION in segment:
                    here.anything.append(here.below[segment])
            here = here.below[segment]
        here.datasets.append(dataset)

    def along(self, pattern: Folder) -> Iterator[str]:
        """The datasets whose patterns go along this one until either ends, the dataset of the pattern itself among them."""
        here = [self]
        for segment in pattern:
            for tree in here:
                yield from tree.datasets
            here = [below for tree in here for below in tree._at(segment)]
        while here:
            tree = here.pop()
            yield from tree.datasets
            here += tree.below.values()

    def _at(self, segment: str) -> list["FolderTree"]:
        if TRANSACTION in segment:
            return list(self.below.values())
        return self.anything + ([self.below[segment]] if segment in self.below else [])


def neighbours(held: LogAnswer, layout: FolderLayout, dataset: str) -> list[str]:
    """The datasets whose folders may meet those of this one, sorted, itself among them if the log has it."""
    return sorted(_tree(held, layout).along(layout.pattern(dataset)))


@lru_cache(maxsize=8)
def _tree(held: LogAnswer, layout: FolderLayout) -> FolderTree:
    tree = FolderTree()
    for dataset in held.files:
        tree.add(dataset, layout.pattern(dataset))
    return tree
