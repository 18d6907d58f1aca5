"""Tests of the aspects store: the contract, DataHub's own retention case by case, and the whole cycle."""
