"""Operations as jobs, for people who look at Dagster and have no shell: each with its form and its answer.

Belongs here: forms and answers, by what the jobs are about. All of them are listed in dagster/operations/jobs.py.
Does not belong here: the operations themselves (operations), and when one runs by itself (automation/schedules.py).
"""
