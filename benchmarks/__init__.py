"""The conversion measured beside what one would write or use instead of it.

Machines differ and are noisy, so one run prints all baselines side by side, and their ratio to
the floor: the same images decoded by bare threads, nothing written. No figure is asserted.

    python -m benchmarks --photos DIR

Needs the extra `benchmarks`, and a checkout: neither is part of the installed package.
"""
