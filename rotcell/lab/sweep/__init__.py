"""Many runs: which ones a study has, who computes them, and where their records are kept."""
