"""The demonstration: a small environment of one's own, and the page that explains what retention does with it."""
