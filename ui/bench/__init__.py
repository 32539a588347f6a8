"""The benchmark: what deciding, recording and keeping cost, alone, under load and beside others."""
