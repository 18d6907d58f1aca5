"""DataHub's retention file: which entry is in force for an aspect, what it keeps, and how its mistakes are named."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import BadInput, Problem
from retention_assets.policy import AspectEntry, Duration, KeepAll, Policy, matches, policies_for
from retention_assets.policy import sentence as sentence_of_policy
from retention_assets.policy.datahub import escape_glob, looks_like_datahub, overlay, read_entries, sentence
from retention_assets.settings.yaml import parse_document

NOW = datetime(2026, 7, 1, tzinfo=UTC)
DAY = 86_400


def entry(entity: str, aspect: str, versions: int = 0, seconds: int = 0, force: bool = False) -> AspectEntry:
    """An entry; without a number it keeps everything."""
    kept: dict[str, object] = {"version": {"maxVersions": versions}} if versions else {}
    kept |= {"time": {"maxAgeInSeconds": seconds}} if seconds else {}
    data = {"entity": entity, "aspect": aspect, "config": {"retention": kept or {"indefinite": {}}}, "forceOverwrite": force}
    return AspectEntry.model_validate(data)


def read(text: str) -> list[AspectEntry]:
    return read_entries(parse_document(text, "datahub.yaml"))


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        read(text)
    return caught.value.problems


EXACT, ASPECT, ENTITY, ALL = ("dataset", "status"), ("*", "status"), ("dataset", "*"), ("*", "*")


def winner_of(entries: list[AspectEntry], dataset: str) -> str | None:
    return next((policy.name.removeprefix("datahub:") for policy in policies_for(entries, [f"meta/{dataset}"])), None)


@pytest.mark.parametrize("backwards", [False, True], ids=["as listed", "backwards"])  # the place in a file says nothing
def test_the_most_specific_entry_wins(backwards: bool) -> None:
    order = (EXACT, ASPECT, ENTITY, ALL)  # an aspect says more than an entity
    for keys in (keys for number in range(5) for keys in combinations(order, number)):
        entries = [entry(*key, versions=number) for number, key in enumerate(reversed(keys) if backwards else keys, 1)]
        assert winner_of(entries, "dataset.status") == (".".join(keys[0]) if keys else None)


@pytest.mark.parametrize(
    ("dataset", "winner"),
    [
        pytest.param("dataset.ownership", ENTITY, id="another aspect of the entity"),
        pytest.param("chart.status", ASPECT, id="the aspect of another entity"),
        pytest.param("chart.ownership", ALL, id="neither"),
        pytest.param("Dataset.status", ASPECT, id="the case counts"),
        pytest.param("data.status", ASPECT, id="a beginning is not the name"),
        pytest.param("datasets.stat", ALL, id="an end is not the name"),
    ],
)
def test_an_entry_is_in_force_for_its_own_names_only(dataset: str, winner: tuple[str, str]) -> None:
    assert winner_of([entry(*key) for key in (EXACT, ASPECT, ENTITY, ALL)], dataset) == ".".join(winner)


def test_an_indefinite_winner_sets_its_aspect_free() -> None:
    """Merged with the general rule it would lose versions that its author promised to keep."""
    (policy,) = policies_for([entry(*EXACT), entry(*ALL, versions=1)], ["meta/dataset.status"])
    assert isinstance(policy, KeepAll)
    assert (policy.name, policy.datasets.include) == ("datahub:dataset.status", ("meta/dataset.status",))
    assert sentence_of_policy(policy) == "Keeps every version of aspect status of entity dataset."


def test_the_last_file_wins_per_key_whole_with_its_force_and_the_others_stay() -> None:
    shipped = [entry(*EXACT, versions=1, force=True), entry(*ALL, versions=20, force=True)]
    own = [entry(*ASPECT, seconds=60), entry(*ALL, seconds=3)]
    assert overlay([shipped, [], own]) == [shipped[0], own[1], own[0]]
    assert overlay([]) == []


def policy_of(rule: AspectEntry, current_counts: bool = False) -> Policy:
    (policy,) = policies_for([rule], ["meta/dataset.status"], current_counts)
    return policy


def left(policy: Policy, history: dict[int, int]) -> set[int]:
    """What a policy leaves of a history, by the sentences of the design alone; the current version is protected."""
    newest_first = [0, *sorted(history.keys() - {0}, reverse=True)]
    if isinstance(policy, KeepAll):
        return set(newest_first)
    older, beyond = policy.select.older_than, policy.select.beyond
    gone = set()
    for position, version in enumerate(newest_first):
        outside = beyond is None or beyond.transactions is None or position >= beyond.transactions
        old = older is None or NOW - timedelta(days=history[version]) < older.age.before(NOW)
        if outside and old and version != 0:
            gone.add(version)
    return set(newest_first) - gone


@given(st.integers(1, 6) | st.none(), st.integers(1, 50) | st.none(), st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_what_is_kept_as_datahub_says_it(versions: int | None, days: int | None, ages: list[int], current_counts: bool) -> None:
    """Its page: the latest version never goes; N latest versions are kept; versions of the last seconds are kept."""
    ages = sorted(ages, reverse=True)  # version 1 is the oldest
    rule = entry(*ALL, versions or 0, (days or 0) * DAY)
    newest = set(range(1, len(ages) + 1)[max(0, len(ages) - (versions or 0) + current_counts) :]) if versions else set()
    young = {version for version, age in enumerate(ages, 1) if days and age <= days}
    everything = set(range(1, len(ages) + 1)) if not versions and not days else set()
    history = {0: 0, **dict(enumerate(ages, 1))}
    assert left(policy_of(rule, current_counts), history) == {0} | newest | young | everything


def test_a_policy_has_the_entrys_name_its_sentence_a_grace_and_nothing_that_reaches_latest_views() -> None:
    policy = policy_of(entry(*EXACT, versions=3, force=True))
    assert (policy.name, policy.grace, policy.force_overwrite) == ("datahub:dataset.status", Duration(days=7), True)
    assert policy.latest_view is None
    assert policy.description == sentence(entry(*EXACT, versions=3))
    assert (policy.branches.reach, policy.sweep.mode) == ("live", "delete")


def test_an_age_in_whole_days_reads_as_days() -> None:
    """2592000 seconds are DataHub's way to write 30 days; both move an instant by the same length."""
    older_than = policy_of(entry(*ALL, seconds=30 * DAY)).select.older_than
    assert older_than is not None
    assert older_than.age == Duration(days=30)


SHIPPED = [
    entry("dataHubAction", "dataHubActionStatus", versions=1),
    entry("dataset", "*", seconds=60),
    entry("*", "*", versions=20),
]


@pytest.mark.parametrize(
    ("datasets", "answer"),
    [
        pytest.param([], {}, id="no dataset: no policy"),
        pytest.param(["m/chart.status"], {"datahub:*.*": ("m/chart.status",)}, id="one for all"),
        pytest.param(
            ["m/dataset.b", "m/chart.a", "m/dataHubAction.dataHubActionStatus", "m/dataset.a"],
            {
                "datahub:dataHubAction.dataHubActionStatus": ("m/dataHubAction.dataHubActionStatus",),
                "datahub:dataset.*": ("m/dataset.a", "m/dataset.b"),
                "datahub:*.*": ("m/chart.a",),
            },
            id="each dataset with its winner, policies in the order of the entries, datasets by name",
        ),
        pytest.param(["m/a.b", "m/a.b"], {"datahub:*.*": ("m/a.b",)}, id="a dataset named twice is one"),
        pytest.param(["m/a.b", "n/a.b"], {"datahub:*.*": ("m/a.b", "n/a.b")}, id="several stores"),
        pytest.param(["m.x/dataset.a"], {"datahub:dataset.*": ("m.x/dataset.a",)}, id="a dot in the store's name"),
        pytest.param(["m/dataset.a.b"], {"datahub:dataset.*": ("m/dataset.a.b",)}, id="a dot in the aspect's name"),
        pytest.param(["m/a[1].b*?"], {"datahub:*.*": ("m/a[[]1].b[*][?]",)}, id="marks of globs are escaped"),
        pytest.param(["m/plain", "plain.x", "m/.x", "m/x.", "m/"], {}, id="what is no entity.aspect is chosen by none"),
    ],
)
def test_policies_choose_the_datasets_that_their_entry_wins(datasets: list[str], answer: dict[str, tuple[str, ...]]) -> None:
    found = policies_for(SHIPPED, datasets)
    assert [(policy.name, policy.datasets.include) for policy in found] == list(answer.items())


@given(st.text("ab*?[]!-.", min_size=1, max_size=8), st.text("ab*?[]!-.", min_size=1, max_size=8))
def test_an_escaped_name_matches_itself_alone(name: str, other: str) -> None:
    assert matches(f"m/{name}", [escape_glob(f"m/{name}")])
    # a glob also matches what has it for a name
    assert matches(f"m/{other}", [escape_glob(f"m/{name}")]) == (f"m/{other}" in (f"m/{name}", escape_glob(f"m/{name}")))


REAL = """\
- entity: "*" # for all
  aspect: "*"
  config:
    retention:
      version:
        maxVersions: 20
- entity: "dataset"
  aspect: datasetProperties
  config:
    retention:
      version: {maxVersions: 10}
      time: {maxAgeInSeconds: 2592000}
- {entity: dataset, aspect: ownership, forceOverwrite: true, config: {retention: {indefinite: {}}}}
"""


def test_a_file_as_datahub_has_it_is_read() -> None:
    general, both, free = read(REAL)
    assert general == entry("*", "*", versions=20)
    assert both == entry("dataset", "datasetProperties", versions=10, seconds=30 * DAY)
    assert free == entry("dataset", "ownership", force=True)


AB = "{entity: a, aspect: b, %s}"
RETENTION = "{entity: a, aspect: b, config: {retention: {%s}}}"
FREE = "config: {retention: {indefinite: {}}}"
REST = FREE + "}"

BAD = [
    # (an entry, its name, the key at fault, the value found, a part of what was expected)
    (AB % "forceOverwrite: true", "datahub:a.b", "config", None, "a value"),
    ("{aspect: b, " + REST, "#1", "entity", None, "a value"),
    ("{entity: a, " + REST, "#1", "aspect", None, "a value"),
    ("just words", "#1", None, "'just words'", "a mapping"),
    (AB % "config: {}", "datahub:a.b", "config.retention", None, "a value"),
    # A rule that says nothing, or both things, is not one that this tool chooses a meaning for.
    (RETENTION % "", "datahub:a.b", "config.retention", None, "indefinite, version or time"),
    (RETENTION % "indefinite: ", "datahub:a.b", "config.retention.indefinite", None, "a mapping"),
    (RETENTION % "indefinite: true", "datahub:a.b", "config.retention.indefinite", "True", "a mapping"),
    (RETENTION % "indefinite: {}, time: {maxAgeInSeconds: 1}", "datahub:a.b", "config.retention", None, "indefinite alone"),
    # Unknown keys: the rest of the entry could mean something else than its author thinks.
    (RETENTION % "versions: {maxVersions: 1}", "datahub:a.b", "config.retention.versions", None, "one of indefinite, version"),
    (RETENTION % "version: {maxVersions: 1, n: 1}", "datahub:a.b", "config.retention.version.n", None, "one of maxVersions"),
    (AB % f"force_overwrite: true, {FREE}", "datahub:a.b", "force_overwrite", None, "one of entity, aspect, config, force"),
    (AB % f"forceOverwrite: 'yes', {FREE}", "datahub:a.b", "forceOverwrite", "'yes'", "true or false"),
    # DataHub knows whole names and *, and no other pattern.
    ("{entity: 'data*', aspect: b, " + REST, "datahub:data*.b", "entity", "'data*'", "a whole name"),
    ("{entity: a.b, aspect: b, " + REST, "datahub:a.b.b", "entity", "'a.b'", "a whole name"),
    ("{entity: a, aspect: 5, " + REST, "#1", "aspect", "5", "a string"),
    # Numbers: to keep nothing is not a way to keep, and what DataHub could not read is not read here.
    *(
        (RETENTION % f"{kind}: {{{number}: {text}}}", "datahub:a.b", f"config.retention.{kind}.{number}", value, expected)
        for kind, number in (("version", "maxVersions"), ("time", "maxAgeInSeconds"))
        for text, value, expected in (
            ("0", "0", "more than 0"),
            ("2147483648", "2147483648", "at most 2147483647"),
            ("1.0", "1.0", "a whole number"),
            ("'20'", "'20'", "a whole number"),
            ("", None, "a whole number"),
        )
    ),
]


@pytest.mark.parametrize(("text", "policy", "key", "value", "expected"), BAD, ids=[row[0] for row in BAD])
def test_a_mistake_is_named(text: str, policy: str, key: str | None, value: str | None, expected: str) -> None:
    (problem,) = problems(f"# DataHub\n- {text}")
    assert (problem.file, problem.line, problem.policy, problem.key) == ("datahub.yaml", 2, policy, key)
    assert (problem.value, expected in (problem.expected or "")) == (value, True)


def test_every_mistake_of_a_file_is_reported_at_once() -> None:
    text = REAL.replace("maxVersions: 20", "maxVersions: 0").replace("2592000", "soon")
    text += "- {entity: '*', aspect: '*', config: 5}\n"
    assert [(problem.line, problem.policy, problem.key) for problem in problems(text)] == [
        (6, "datahub:*.*", "config.retention.version.maxVersions"),
        (12, "datahub:dataset.datasetProperties", "config.retention.time.maxAgeInSeconds"),
        (14, "datahub:*.*", "config"),
    ]


def test_one_key_twice_in_a_file_is_reported_where_the_second_stands() -> None:
    (problem,) = problems(f"{REAL}- {{entity: '*', aspect: '*', config: {{retention: {{indefinite: {{}}}}}}}}\n")
    assert (problem.file, problem.line, problem.policy) == ("datahub.yaml", 14, "datahub:*.*")
    assert problem.remedy == "The other one is on line 1."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param(REAL, True, id="as DataHub has it"),
        pytest.param("- {entity: a}", True, id="broken, but meant so"),
        pytest.param("- {aspect: a}", True, id="broken the other way"),
        pytest.param("- x\n- {entity: a}", True, id="broken in one entry: the reader names it"),
        pytest.param("policies: []", False, id="our own file"),
        pytest.param("entity: a\naspect: b", False, id="an entry without its list"),
        pytest.param("- {name: a, datasets: {include: [x]}}", False, id="our own policies without their heading"),
        pytest.param("[]", False, id="nothing to tell by"),
        pytest.param("words", False, id="words"),
    ],
)
def test_datahubs_file_is_told_from_ours(text: str, answer: bool) -> None:
    assert looks_like_datahub(parse_document(text, "x").data) is answer


def test_a_file_that_is_no_list_is_refused() -> None:
    (problem,) = problems("entity: a\n")
    assert (problem.what, problem.file) == ("is not a list", "datahub.yaml")


@pytest.mark.parametrize(
    ("rule", "current_counts", "text"),
    [
        (entry(*EXACT), False, "Keeps every version of aspect status of entity dataset."),
        (
            entry(*ALL, versions=20), False,
            "Marks a version of every aspect of every entity when it is not among the newest 20 versions before the current one.",
        ),
        (
            entry(*EXACT, versions=1), False,
            "Marks a version of aspect status of entity dataset when it is not the newest one before the current one.",
        ),
        (
            entry(*EXACT, versions=2), True,
            "Marks a version of aspect status of entity dataset when it is not among the newest 2 versions, the current one"
            " counted.",
        ),
        (entry(*ASPECT, versions=1), True, "Marks a version of aspect status of every entity when it is not the current one."),
        (
            entry(*ENTITY, versions=1500, seconds=30 * DAY + 60), False,
            "Marks a version of every aspect of entity dataset when it is not among the newest 1,500 versions before the"
            " current one and is more than 30 days and 1 minute old.",
        ),
    ],
)  # fmt: skip
def test_an_entry_says_what_it_does(rule: AspectEntry, current_counts: bool, text: str) -> None:
    always = "" if text.startswith("Keeps") else " The current version always stays."
    assert sentence(rule, current_counts) == text + always
