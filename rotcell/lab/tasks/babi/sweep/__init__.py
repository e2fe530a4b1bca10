"""Sweeps of bAbI: one result file per run in a folder, collected into one file per experiment."""
