"""The audit: a chain of every act, the seals of what acts were done to, and the verification of both."""
