"""What the result files say: statistics, tables, figures and pages."""
