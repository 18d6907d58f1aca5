"""The naive oracle, and the tests by which the laws trust it.

Belongs here: the meaning of the rules, slow and obvious, on dicts, lists and loops. The kernel is held against it.
Does not belong here: anything shared with the kernel beyond the policy model it takes as input (Duration, globs), and
anything clever. Where the page is silent, the reading taken is said in a comment at the line that takes it.
"""
