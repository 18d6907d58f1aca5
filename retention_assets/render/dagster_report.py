"""What is shown of the report: plots of what was freed and of what waits, as Dagster's page and the report's page have them.

Belongs here: plots as Markdown. A strip is shown at once, the plots by a click on [Show Markdown]: Dagster's page shows no more
than a thousand characters of Markdown by itself.
"""

import dagster as dg

from retention_assets.render.bars import Plot, data_uri
from retention_assets.render.plots import Days, freed_words
from retention_assets.render.strips import strip


def strip_markdown(found: Days) -> dg.MetadataValue:
    """What was freed day by day, at a glance."""
    return dg.MetadataValue.md(strip(freed_words(found), found.totals))


def plot_markdown(plot: Plot) -> dg.MetadataValue:
    """A plot, with its answer for those who can't see it."""
    # Brackets would end the words too early.
    words = plot.title.translate({ord("["): "(", ord("]"): ")"})
    return dg.MetadataValue.md(f"![{words}]({data_uri(plot)})")
