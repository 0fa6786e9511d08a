"""What workers share: progress counters, decoding in a subprocess, the number of cores."""
