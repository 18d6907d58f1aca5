"""Operations: functions of a request and an environment, which the command line and the Dagster jobs call.

The request is a frozen value that can't be built wrong; the result is a frozen value whose `as_dict` is what `--format
json` prints. What can't be done is raised as BadInput or Refused, with the same sentence for every caller.
"""
