"""Many runs: which ones an experiment has, who computes them, and one result file for each."""
