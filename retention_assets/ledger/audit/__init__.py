"""The audit: the chain of acts, the seals of their rows, and the verification of both."""
