"""A second project that has the assets in it: `shop`, which is copied into a folder of its own and loaded from there.

Belongs here: whatever embedding promises, tried on it: by component, by `build_defs`, twice, beside assets of others.
"""
