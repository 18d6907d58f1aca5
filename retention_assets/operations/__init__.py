"""What people do: each operation once, from a request to a result. The command line and the Dagster jobs call it.

An operation is a function of a request and an environment. The request is a frozen value that can't be built wrong; the result
is a frozen value whose `as_dict` is what `--format json` prints. What can't be done is raised as BadInput or Refused, with the
same sentence wherever it was asked for.

Does not belong here: options and prompts (commands), forms and metadata (dagster/operations/jobs.py), statements (ledger).
"""
