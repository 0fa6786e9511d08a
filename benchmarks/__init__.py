"""Benchmarks of conversions against the alternatives, from tutorial loops to litData.

Machines differ and are noisy, so one run prints all baselines of a workload side by side, with
their ratio to one of them. No figure is asserted.

    python -m benchmarks --photos DIR

They need a checkout and the extra `benchmarks`; they are not part of the installed package.
"""
