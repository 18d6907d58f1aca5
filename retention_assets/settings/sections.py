"""Sections of `retention.yaml`: Spark, the clock, realms, the brake, automation, and Dagster's catalog.

Dagster is not imported, so that commands which only read settings start at once.
"""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from retention_assets.errors import InvalidValue
from retention_assets.policy.durations import Duration, Interval, Length, is_always_longer
from retention_assets.stores.settings import Properties, SettingsPart

_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|(spark|k8s|sc)://\S+", re.ASCII)


def _fitting(pattern: re.Pattern[str], expected: str, what: str = "is not valid in Dagster") -> AfterValidator:
    def fit(text: str) -> str:
        if not pattern.fullmatch(text):
            raise InvalidValue(what, expected)
        return text

    return AfterValidator(fit)


_EXPECTED_MASTER = "local, local[*], local[2], yarn, spark://…, k8s://… or sc://…"


class SparkSettings(SettingsPart):
    """How the Spark session is started."""

    master: Annotated[str, _fitting(_MASTER, _EXPECTED_MASTER, "is not a Spark master")] = "local[*]"
    # Not in repr: a Spark configuration holds keys of object stores.
    conf: Properties = Field(default_factory=dict, repr=False)
    shared_disk: Annotated[bool, Field(description="With a cluster: every machine sees the same folders, as on NFS.")] = False

    @model_validator(mode="after")
    def _no_task_runs_twice(self) -> Self:
        # A second copy of a sweeping task finds its datasets leased by the first and only does harm.
        if self.conf.get("spark.speculation", "").strip().lower() == "true":
            raise InvalidValue(
                "has spark.speculation: true: a task that deletes must not start twice",
                "spark.speculation: false, or nothing",
                "Remove the line.",
                key="conf",
            )
        return self


class ClockSettings(SettingsPart):
    """How far a clock may be off before sweeping is refused; or that there is none, and a run's as_of is its present."""

    max_ahead: Length = Duration(days=14)
    max_skew: Length = Duration(seconds=300)
    simulated: Annotated[
        bool, Field(description="For tests and demonstrations: as_of is the present. Stores must be in this folder.")
    ] = False


class RealmSettings(SettingsPart):
    """The least grace of what purging a realm marks, whatever was said of the realm, and for how long it is set aside."""

    min_grace: Annotated[Length, Field(description="0s needs confirm: no-grace beside it.")] = Duration(days=7)
    confirm: Annotated[Literal["no-grace"] | None, Field(description="Needed with min_grace: 0s.")] = None
    undo: Annotated[
        Length, Field(description="A purge sets data aside for this time, in stores that can, before it deletes it for good.")
    ] = Duration()

    @model_validator(mode="after")
    def _no_grace_is_meant(self) -> Self:
        if bool(self.min_grace) == (self.confirm is not None):
            raise InvalidValue(
                "allows a purge without grace" if self.min_grace else "leaves no time to stop a purge",
                "a min_grace longer than 0s alone, or min_grace: 0s with confirm: no-grace",
                "Remove or add `confirm`.",
                key="confirm" if self.min_grace else "min_grace",
            )
        return self

    def grace_of(self, asked: Duration) -> Duration:
        """The requested grace, or the least grace if that is longer."""
        return asked if asked == self.min_grace or is_always_longer(asked, self.min_grace) else self.min_grace


class BrakeSettings(SettingsPart):
    """How much of a store one day may take before a person has to agree."""

    usual: Annotated[
        float,
        Field(ge=1, description="Limit: this many times the transactions or bytes of the store's largest day of the last 30."),
    ] = 10
    share: Annotated[
        float | None,
        Field(gt=0, le=1, description="Limit: this share of all transactions of the store. By default no limit."),
    ] = None


def parse_brake(value: object) -> object:
    if isinstance(value, str) and value != "off":
        raise InvalidValue("is not a brake", "a mapping with usual or share, or the word off")
    return None if value == "off" else value


class AutomationSettings(SettingsPart):
    """Acts of Dagster's daemon without a person. Everything is off unless it is asked for: nothing is deleted by surprise."""

    discover: bool = False
    policies: bool = False
    # Interval between looks for due marks; None: never.
    sweep: Interval | None = None
    report: bool = False
    # Daily: postpones expiry in stores that expire rows by themselves.
    housekeeping: bool = False
    # Daily: verifies the whole ledger.
    verify: bool = False
    evaluate: Annotated[
        Interval | None,
        Field(description="How often to look for datasets whose verdicts may have changed. By default never."),
    ] = None
    everything: Annotated[
        Interval, Field(description="With evaluate: each dataset is judged again within this time, changed or not.")
    ] = Duration(days=7)
    granularity: Annotated[
        Interval, Field(description="With evaluate: verdicts that only time changes are renewed within this time.")
    ] = Duration(seconds=3600)
    datasets_per_run: Annotated[
        int, Field(gt=0, description="With evaluate: one run judges at most this many datasets; the next run takes the others.")
    ] = 100_000
    assets_up_to: Annotated[
        int,
        Field(
            ge=0,
            description="Runs over at most this many datasets use partitions, which the graph shows. Larger runs use a list.",
        ),
    ] = 1_000


# Allowed in names of jobs, which have the prefix as well.
WORD = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
WORDS = "letters, digits and _; a / between the parts of a prefix"
_OWNER = re.compile(r"team:[A-Za-z0-9._-]+|[^\s@]+@[^\s@]+\.[^\s@]+", re.ASCII)
_TAG = re.compile(r"([A-Za-z0-9._-]{1,63}/)?[A-Za-z0-9._-]{1,63}", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}", re.ASCII)


def _parts(value: object) -> object:
    return listed(value.split("/") if isinstance(value, str) else value)


def listed(value: object) -> object:
    """Take one string or path for a list of one."""
    return (value,) if isinstance(value, str | Path) else tuple(value) if isinstance(value, list) else value


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for name, value in tags.items():
        if not _TAG.fullmatch(name) or not _VALUE.fullmatch(value):
            expected = "letters, digits, '.', '_' and '-', at most 63; a name may have a prefix and a /"
            raise InvalidValue(f"has the tag '{name}: {value}', which Dagster refuses", expected)
    return tags


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://\S+", text):
        raise InvalidValue(
            "is not the address of a web page", "the address of the package's folder, https://host/group/project/tree/branch"
        )
    return text.rstrip("/")


Prefix = Annotated[str, _fitting(WORD, WORDS)]
Owner = Annotated[str, _fitting(_OWNER, "team:name, or an e-mail address")]


class DagsterSettings(SettingsPart):
    """How this environment stands in Dagster's catalog."""

    # Before asset keys and in every other name: separates projects and environments.
    key_prefix: Annotated[tuple[Prefix, ...], BeforeValidator(_parts, str | list[str])] = ()
    group: Annotated[str, _fitting(WORD, WORDS)] = "retention"
    owners: Annotated[tuple[Owner, ...], BeforeValidator(listed, str | list[str])] = ()
    tags: Annotated[Properties, AfterValidator(_tags)] = Field(default_factory=dict)
    jobs: Annotated[
        Literal["usual", "all"],
        Field(description="usual: the jobs that an operator needs in a browser; all: one per operation."),
    ] = "usual"
    # Web page of the folder that holds the package. Without it, assets name the file on disk.
    source: Annotated[str, AfterValidator(_address)] | None = None
