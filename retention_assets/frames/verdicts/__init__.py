"""From a history and policies to a verdict for every transaction, with the reasons, and when to judge again."""
