"""Statistics, tables, figures and pages of the result files."""
