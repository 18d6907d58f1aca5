"""A log and policies in the working directory, for commands that read both."""

from pathlib import Path

from retention_assets_tests.histories import AS_OF, History, history, to_lines

NOW = "2026-03-31T12:00:00Z"
OLD = "policies: [{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}}]\n"


# Branch xyz forks from abc at T2, and only abc has a second view: the demonstration of the Foundry documents.
DEMONSTRATION = "abc: T1:APPEND@40d - T2:APPEND@39d - T3:SNAPSHOT@38d - T4:APPEND@37d  |  xyz: T2 - T5:APPEND@36d"


def write(*drawn: History, policies: str = OLD, more: str = "") -> tuple[str, ...]:
    """A log and policies in the working directory, and the options that name them."""
    assert all(one.as_of == AS_OF for one in drawn)
    Path("log.jsonl").write_text("\n".join(to_lines(drawn)) + "\n" + more)
    Path("p.yaml").write_text(policies)
    return ("--log", "log.jsonl", "--policies", "p.yaml", "--as-of", NOW)


SOUND = history("main: S:SNAPSHOT@50d=7 - T:SNAPSHOT@40d - U:APPEND@1d  |  -: U - V:APPEND?@1h")
CYCLE = '{"dataset":"lake/bad","transaction":"X","parent":"X","type":"APPEND","status":"ABORTED"}\n'
