"""Estimators: of a series, of a change, of a difference between groups."""
