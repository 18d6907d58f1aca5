"""The report as a page: one HTML file that refers to nothing else, to be kept, sent or printed.

Belongs here: what the page shows, in which order and words. How it looks is report.css's, which is written into the page.
Does not belong here: any number that the report does not have.

How elements are made and written is page_elements.py's: no text gets past it unescaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from importlib.resources import files
from xml.etree.ElementTree import Element

from retention_assets.render.bars import NARROW, Plot, draw
from retention_assets.render.elements import at, document, element, element_named, table
from retention_assets.render.terminal import size_of
from retention_assets.report import CLASSES, DayReport, ReportLine, iso_of, sum_lines

MOST_SHOWN = 1_000
_BAR = 1_000
# The columns of the table by dataset: heading, counter, and whether it counts bytes.
_COLUMNS = (
    ("to delete", "to_delete", False), ("deleted", "deleted", False), ("already gone", "already_gone", False),
    ("failed", "failed", False), ("spared", "spared", False), ("unmarked", "unmarked", False),
    ("to free", "bytes_to_free", True), ("freed", "bytes_freed", True),
)  # fmt: skip


def page_of(report: DayReport, plots: Iterable[Plot] = ()) -> str:
    """The page. The same report and plots always give the same text."""
    total = report.total
    parts = [_header(report, total)]
    if report.lines:
        parts += [_tiles(total), *_log(total), *_plots(plots), *_rules(report, total), *_datasets(report.lines, total)]
    else:
        words = f"Nothing was to be deleted: no dataset has a report {'of these days' if report.last else 'of this day'}."
        parts.append(element("section", element("p", words), class_="empty"))
    style = files("retention_assets.render").joinpath("report.css").read_text("utf-8")
    return document(f"Retention report {report.when}", style, element("main", *parts))


def _header(report: DayReport, total: ReportLine) -> Element:
    if total.started_at is None:
        return element("header", element("h1", f"Retention report {report.when}"))
    sentence: list[Element | str] = ["Began ", at(total.started_at)]
    if total.finished_at and total.duration is not None:
        sentence += [", ended ", at(total.finished_at), ", took "]
        sentence += [element("time", _words(total.duration), datetime=iso_of(total.duration)), "."]
        state = element("span", "finished", class_="state done")
    else:
        going = sum(line.finished_at is None for line in report.lines)
        sentence.append(f". Datasets that are not finished: {going:,} of {len(report.lines):,}.")
        state = element("span", "not finished", class_="state going")
    return element("header", element("h1", f"Retention report {report.when}"), state, element("p", *sentence, class_="when"))


def _words(length: timedelta) -> str:
    """A length for people: days, hours and minutes, and of short ones the seconds as exactly as they are known."""
    minutes, seconds = divmod(length, timedelta(minutes=1))
    amounts = (minutes // 1440, minutes // 60 % 24, minutes % 60)
    said = [f"{amount} {unit}" for amount, unit in zip(amounts, ("d", "h", "min"), strict=True) if amount]
    exact = f"{seconds.total_seconds():.3f}".rstrip("0").rstrip(".")
    return " ".join(said if minutes >= 1440 or (said and exact == "0") else [*said, f"{exact} s"])


def _tiles(total: ReportLine) -> Element:
    """The big numbers, each with what it means where the name does not say it."""
    counts = total.counters
    left = f"{total.left:,} left" if total.left else "nothing left"
    later = " for a later day's report" if total.left and total.finished_at else ""
    tiles: tuple[tuple[str, str, str, str], ...] = (
        ("To delete", f"{counts['to_delete']:,}", f"{left}{later}", ""),
        ("Deleted", f"{counts['deleted']:,}", "", ""),
        ("Already gone", f"{counts['already_gone']:,}", "found without bytes", ""),
        ("Failed", f"{counts['failed']:,}", "attempts; each is tried again", "failed" if counts["failed"] else ""),
        ("Spared", f"{counts['spared']:,}", "not justified any more", ""),
        ("Unmarked", f"{counts['unmarked']:,}", "taken back by people", ""),
        ("To free", size_of(counts["bytes_to_free"]), f"{counts['bytes_to_free']:,} bytes", ""),
        ("Freed", size_of(counts["bytes_freed"]), f"{counts['bytes_freed']:,} bytes", ""),
    )
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", number, *([element("small", note)] if note else []), class_=look),
                class_="tile",
            )
            for name, number, note, look in tiles
        ),
        class_="tiles",
    )


def _log(total: ReportLine) -> list[Element]:
    """The log as one bar, and its legend, which sums to it."""
    known = [name for name in CLASSES if total.classes.get(name)]
    found = [*known, *sorted(name for name in total.classes if name not in CLASSES and total.classes[name])]
    size = sum(total.classes.values())
    if not size:
        return [element("h2", "The log"), element("p", "The log was empty when the report opened.", class_="soft")]
    bar = element(
        "svg", class_="bar", viewBox=f"0 0 {_BAR} 28", preserveAspectRatio="none", role="img", aria_label=_said(total, found)
    )
    legend = element("ul", class_="legend")
    x = 0.0
    for name, width in zip(found, _widths([total.classes[name] for name in found]), strict=True):
        count, look = total.classes[name], name if name in CLASSES else "other"
        tip = element("title", f"{name}: {count:,}")
        bar.append(element("rect", tip, class_=look, x=f"{x:.2f}", y="0", width=f"{width:.2f}", height="28"))
        x += width
        swatch = element(
            "svg", element("rect", width="11", height="11", rx="3", class_=look), viewBox="0 0 11 11", aria_hidden="true"
        )
        meaning = element("small", f" {CLASSES[name]}") if name in CLASSES else ""
        numbers = element("span", f"{count:,} ", element("small", _share(count, size)), class_="number")
        legend.append(element("li", swatch, element("span", name, meaning), numbers))
    return [element("h2", f"The log: {size:,} transactions, each in one class when the report opened"), bar, legend]


def _said(total: ReportLine, found: Iterable[str]) -> str:
    return "Classes of the log: " + ", ".join(f"{name} {total.classes[name]:,}" for name in found)


def _widths(counts: Sequence[int]) -> list[float]:
    """Widths in proportion that fill the bar; what is there at all is at least wide enough to be seen."""
    least = _BAR / 250
    wide = [max(_BAR * count / sum(counts), least) for count in counts]
    return [width * _BAR / sum(wide) for width in wide]


def _share(count: int, size: int) -> str:
    share = 100 * count / size
    return "under 0.1 %" if share < 0.1 else "over 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _plots(plots: Iterable[Plot]) -> list[Element]:
    """The plots side by side where there is room. Each says in its title what it shows."""
    pictures = [element("figure", draw(plot, NARROW)) for plot in plots]
    return [element("div", *pictures, class_="plots")] if pictures else []


def _rules(report: DayReport, total: ReportLine) -> list[Element]:
    """The policies with their versions and bounds, and what they say of records."""
    rows = [
        [
            element("th", element_named(name), scope="row"),
            element("td", ", ".join(map(str, filter(None, versions))) or "–"),
            element("td", ", ".join(total.periods.get(name, ())) or "–"),
            element("td", *_bounds(total.bounds.get(name, ()))),
        ]
        for name, versions in total.policies.items()
    ]
    if not rows:
        return [element("h2", "Policies"), element("p", "No policy is about these datasets.", class_="soft")]
    parts = [element("h2", "Policies"), table(("policy", "versions", "period", "takes what is older than"), (), rows)]
    said = [line.terminal_only for line in report.lines if line.terminal_only is not None]
    if said:
        words = f"Of records, only finished ones may go in {said.count(True):,} of {len(said):,} datasets with a rule for it."
        parts.append(element("p", words, class_="soft"))
    if total.archived_types:
        names = [piece for kind in total.archived_types for piece in (", ", element_named(kind))][1:]
        parts.append(element("p", "Archived before they may go: ", *names, ".", class_="soft"))
    return parts


def _bounds(bounds: Sequence[str]) -> list[Element | str]:
    """One bound, or the first and the last of several."""
    ends = [element("time", bound, datetime=bound) for bound in bounds]
    return [ends[0], " to ", ends[-1]] if len(ends) > 1 else [*ends] or ["no age"]


def _datasets(lines: Sequence[ReportLine], total: ReportLine) -> list[Element]:
    shown, rest = _chosen(lines)
    said = element("p", class_="soft")
    if rest:
        said.text = (
            f"{len(shown):,} of {len(lines):,} datasets are listed: where something failed, then by most to delete. "
            f"The other {len(rest):,} are one row, added up."
        )
    columns = ("dataset", *(heading for heading, _, _ in _COLUMNS), "finished")
    rows = [_row(element_named(line.dataset), line) for line in shown]
    rows += [_row(f"{len(rest):,} more datasets", sum_lines("rest", rest))] if rest else []
    return [
        element("h2", f"Datasets: {len(lines):,}"),
        *([said] if rest else []),
        table(columns, columns[1:-1], rows, _row("all", total)),
    ]


def _chosen(lines: Sequence[ReportLine]) -> tuple[list[ReportLine], list[ReportLine]]:
    """The lines that are shown, by name, and the rest."""
    if len(lines) <= MOST_SHOWN:
        return sorted(lines, key=lambda line: line.dataset), []
    ordered = sorted(lines, key=lambda line: (not line.counters["failed"], -line.counters["to_delete"], line.dataset))
    return sorted(ordered[:MOST_SHOWN], key=lambda line: line.dataset), ordered[MOST_SHOWN:]


def _row(name: Element | str, line: ReportLine) -> list[Element]:
    cells = [element("th", name, scope="row")]
    for _, counter, sized in _COLUMNS:
        value = line.counters[counter]
        look = " zero" if not value else " failed" if counter == "failed" else ""
        exact: Mapping[str, str] = {"title": f"{value:,} bytes"} if sized else {}
        cells.append(element("td", size_of(value) if sized else f"{value:,}", class_=f"number{look}", **exact))
    done = line.finished_at is not None
    return [*cells, element("td", "yes" if done else "no", class_="done" if done else "going")]
