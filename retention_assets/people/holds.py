"""Place a hold, so that nothing it covers is marked or swept, and release it.

A hold is placed first and checked afterwards: the last verdicts may be old.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import click
import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, suggest
from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.log import holds_dataset
from retention_assets.ledger import Ledger
from retention_assets.ledger.book import RecordedKeepers
from retention_assets.people.command import FORMAT, ask_and_show, command, examples, options
from retention_assets.people.operation import (
    Flags,
    Instant,
    Kind,
    Only,
    ReasonedRequest,
    Request,
    Result,
    Text,
    fields_of,
    operation,
    what_is_missing,
)
from retention_assets.people.output import ExitCode
from retention_assets.pipeline.stage import by_folder, read_output
from retention_assets.policy.datahub import escape_glob
from retention_assets.policy.durations import text_of
from retention_assets.policy.globs import is_literal, protecting
from retention_assets.policy.keys import Glob
from retention_assets.policy.model import Hold, Keeper
from retention_assets.policy.sentences import count, hold_sentence
from retention_assets.render.page import Table
from retention_assets.render.tables import HOLDS
from retention_assets.settings.model import Settings
from retention_assets.settings.yaml import Document, problems_of


class HoldRequest(ReasonedRequest):
    """Hold to be placed."""

    name: Text = Field(description="The name of the hold, such as audit-2026; it is released by this name.")
    datasets: Annotated[tuple[str, ...], Flags("-d", "--dataset", metavar="GLOB")] = Field(
        description="Hold these datasets, such as 'lake/raw.*'; several may be given."
    )
    transactions: Annotated[tuple[str, ...], Flags("-x", "--transaction", metavar="GLOB")] = Field(
        default=(), description="Only these transactions, such as 'T1*'; several may be given."
    )
    owner: Text | None = Field(default=None, description="The owner of the hold, such as legal; by default the actor.")
    until: Annotated[Instant | None, Flags("-u", "--until")] = Field(
        default=None, description="When the hold ends by itself, such as 2027-01-01 or 'in 90d'; by default never."
    )
    anyway: Annotated[bool, Only.COMMAND] = Field(
        default=False, description="Exit with 0 even if the hold matches nothing that was judged."
    )

    def hold(self) -> Hold:
        """Build the hold, or raise BadInput with every fault."""
        if self.until is not None and self.until <= now():
            raise BadInput(
                Problem("is past", key="until", value=text_of(self.until), expected="an instant to come, such as 'in 30d'")
            )
        typed = {
            "name": self.name,
            "datasets": {"include": _globs_of(self.datasets)},
            **({"transactions": _globs_of(self.transactions)} if self.transactions else {}),
            "reason": self.reason,
            "owner": self.owner or self.actor,
            **({"until": text_of(self.until)} if self.until else {}),
        }
        try:
            return Hold.model_validate(typed)
        except ValidationError as error:
            raise BadInput(problems_of(error, Document("hold", typed, {}), Hold)) from None


_GLOBS = TypeAdapter(Glob)


def _globs_of(texts: Sequence[str]) -> list[str]:
    # A hold may only become wider: an invalid glob is taken for a name, a character that no glob may have becomes `?`, and
    # both readings are meant.
    globs: list[str] = []
    for text in texts:
        if _is_glob(text):
            globs.append(text)
        else:
            globs += [glob for glob in (with_wildcards(text), with_wildcards(escape_glob(text))) if _is_glob(glob)] or [text]
    return globs


def _is_glob(text: str) -> bool:
    try:
        _GLOBS.validate_python(text)
    except ValidationError:
        return False
    return True


def with_wildcards(text: str) -> str:
    """Replace what is not printable, and so can stand in no glob and no name."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _hold_row(hold: Keeper, source: str) -> dict[str, Any]:
    about = {"name": hold.name, "source": source, "scope": hold.scope}
    return {**about, "reason": hold.reason, "owner": hold.owner, "until": hold.until}


@operation(
    Kind.ACT, "retention hold --list", "retention hold --name audit -d 'lake/raw.*' -r 'the auditors asked' --until 'in 90d'"
)
def hold(request: HoldRequest, environment: Environment) -> Result:
    """Place a hold. What it holds is neither marked nor swept until it ends or is released.

    It counts the datasets and transactions of the last evaluation that the hold matches. A hold that matches nothing is placed
    too.
    """
    placed = request.hold()
    with environment.ledger() as ledger:
        ledger.holds.place(placed, request.actor)
        folders = ledger.publications.named("candidate_marks")
        # a hold that a person places asks for no attributes
        covered = {name: folder for name, folder in folders.items() if holds_dataset(placed, name, {})}
        transactions = _count(placed, covered, ledger) if folders else None
        sweeping = [lease.dataset for lease in ledger.leases.held() if holds_dataset(placed, lease.dataset, {})]
    notes, failures = list(_unknown_stores(placed, environment.settings)), list[str]()
    sentences, about = [hold_sentence(placed)], count(len(covered), "dataset")
    if transactions is None:
        notes.append("It is not known how much the hold matches, because nothing was judged yet.")
    else:
        sentences.append(f"It holds {about} and {count(transactions, 'transaction')} of the last evaluation.")
    if transactions == 0:
        (notes if request.anyway else failures).append(
            f"It matches {about} and no transaction of the last evaluation. Check its names."
        )
    if sweeping:
        names = ", ".join(sweeping)
        notes.append(
            f"{names}: being swept right now. The hold stops the sweep before its next batch. What it has deleted is gone."
        )
    sentences.append("Its marks stay, and the sweep spares them. `retention keep` takes the marks back as well.")
    counts = {"datasets": len(covered) if folders else None, "transactions": transactions, "sweeping": sweeping}
    return Result(
        headline=f"The hold {placed.name} is placed.",
        sentences=sentences,
        next=f"`retention release {shlex.quote(placed.name or '')} --reason …` ends it.",
        notes=notes,
        failures=failures,
        data={**_hold_row(placed, "ledger"), **counts},
    )


def _count(hold: Hold, folders: Mapping[str, str], ledger: Ledger) -> int:
    total = 0
    for folder, datasets in by_folder(folders).items():
        try:
            rows = read_output(folder, "candidate_marks", datasets, ["transaction"])
        except (OSError, pa.ArrowInvalid):
            rows = ledger.marks.table(datasets)
        total += len(rows) if hold.transactions is None else sum(protecting(rows["transaction"].to_pylist(), hold.transactions))
    return total


def _unknown_stores(hold: Hold, settings: Settings) -> Iterator[str]:
    # a team's ledger may know more stores than these settings
    known = [store.name for store in settings.stores]
    for glob in hold.datasets.include:
        store, slash, _ = glob.partition("/")
        if slash and is_literal(store) and store not in known:
            yield f"store '{store}' of '{glob}' is not in the settings. {suggest(store, known) or ''}".rstrip()


class ReleaseRequest(ReasonedRequest):
    """Name of the hold to release."""

    name: Annotated[Text, Flags()] = Field(description="The name of the hold, such as audit-2026.")


@operation(Kind.ACT, "retention release audit -r 'the audit is over'")
def release(request: ReleaseRequest, environment: Environment) -> Result:
    """Release a hold. From the next evaluation on, the policies decide about what it held.

    To release a hold of a policy file, take it out of the file. `retention hold --list` lists both kinds.
    """
    try:
        with environment.existing_ledger() as ledger:
            ledger.holds.release(request.name, request.actor, request.reason)
    except Refused:
        if any(hold.name == request.name for hold in Keepers.of_settings(None, environment.settings).in_files()):
            raise Refused(f"The hold {request.name} is in a policy file. To release it, take it out of the file.") from None
        raise
    return Result(
        headline=f"{request.name} is released. From the next evaluation on, the policies decide about what it held.",
        next="`retention preview` shows what policies decide.",
        data={"name": request.name, "released_by": request.actor, "reason": request.reason},
    )


release_command = command(release, "release")


@operation(Kind.LOOK)
def list_holds(request: Request, environment: Environment) -> Result:
    """List the holds in force."""
    at = now()
    with environment.ledger_if_any() as ledger:
        recorded = ledger.holds.recorded(at) if ledger else RecordedKeepers()
        notes = what_is_missing(environment, ledger, policies=True)
    in_files = list(Keepers.of_settings(None, environment.settings).in_files())
    # Other folders of policies have brought more.
    in_files += [row.keeper for row in recorded.files if row.keeper not in in_files]
    rows = [_hold_row(each, "ledger") for each in (*recorded.placed, *recorded.purged)]
    rows += [_hold_row(each, "file") for each in in_files if each.is_live(at)]
    table = Table("Holds in force", HOLDS, rows, empty="No hold is in force")
    return Result(data=rows, tables=lambda: [table], notes=notes)


@examples(*hold.examples)
@click.command("hold", help=f"{hold.help} The exit code is then 1, or 0 with --anyway. --list lists the holds in force.")
@click.option("--list", "lists", is_flag=True, help="List the holds in force, and place none.")
@options(HoldRequest, optional=True)
@FORMAT
def hold_command(lists: bool, actor: str, format_: str, **given: Any) -> ExitCode:
    if lists:
        if any(given.values()):
            raise click.UsageError("--list places no hold: give it alone.")
        return ask_and_show(list_holds, format_)
    if missing := [field.flags.names[-1] for field in fields_of(HoldRequest) if field.required and not given[field.name]]:
        raise click.UsageError(f"A hold needs {missing[0]}. `retention hold --list` lists those in force.")
    return ask_and_show(hold, format_, actor=actor, **given)
