"""Branches and their views of each transaction: chains, views, latest views, protection."""
