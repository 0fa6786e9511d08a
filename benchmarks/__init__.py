"""Benchmarks of conversions against the alternatives: TFDS, plain Beam and tutorial loops.

Machines differ and are noisy, so one run prints all baselines side by side, with their ratio to
a bare decoding loop that writes nothing. No figure is asserted.

    python -m benchmarks --photos DIR

They need a checkout and the extra `benchmarks`; they are not part of the installed package.
"""
