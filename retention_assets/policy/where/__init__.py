"""The `where` line of a policy: its grammar, the typed tree that it becomes, and what is said of one that is refused."""
