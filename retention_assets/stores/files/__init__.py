"""The `files` store: histories in the exchange format, the data of each transaction in a folder of its own."""
