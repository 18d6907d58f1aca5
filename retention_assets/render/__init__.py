"""How results look: tables on a terminal, Dagster's pages, the HTML report, plots. One module per medium; nothing is decided
here."""
