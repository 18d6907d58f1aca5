"""The commands of `retention`, one module per group.

A module here defines click commands and nothing else that others need; cli.py registers them, and knows no more of them than
that. What commands share stands in options.py (what one may type), sources.py and logs.py (what a command works on) and
output.py (what it prints). Nothing heavier than click is imported when a module is: a command imports what it needs when it
runs, so that `--help` answers at once.

Does not belong here: deciding, marking, reading a store. A command reads its arguments, calls what does the work, and prints.
"""
