"""Engines: runners and their options, failures of jobs, and patches of Beam."""
