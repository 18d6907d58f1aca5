"""Requests of people: one module for each noun, with its operations and results, and the commands made of them."""
