"""A shop's data platform, as small as one can be: an asset of its own, and retention as a component."""
