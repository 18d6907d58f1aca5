"""Commands of `retention` that look, run or write starter files, one module per group; the other commands are in people/.

A command imports what it needs when it runs, so that `--help` answers at once. It reads arguments, calls what does the work,
and prints; deciding, marking and reading a store do not belong here.
"""
