"""The demonstration: a small environment, and the page that explains what retention does with it."""
