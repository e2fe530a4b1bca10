"""The questions: official files, generated ones, and how they differ."""
