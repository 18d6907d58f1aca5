"""The audit: every act as one row of a hash chain, the seals of its members, and verifying both."""
