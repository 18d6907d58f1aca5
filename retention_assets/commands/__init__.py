"""The commands of `retention`, one module per group.

A module defines click commands, and cli.py registers them. What commands share is in options.py (what can be typed),
sources.py and logs.py (what a command works on) and output.py (what it prints). A command imports what it needs when it runs,
so that `--help` answers at once.

A command reads its arguments, calls what does the work, and prints. Whatever changes something is an operation
(retention_assets/operations); deciding, marking and reading a store do not belong here.
"""
