"""One module per asset. No rule of retention is decided here."""
