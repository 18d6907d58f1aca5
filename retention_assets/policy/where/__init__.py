"""The `where` line of a policy: its grammar, its typed tree, and its errors."""
