"""The questions: official files, generated ones, and what tells them apart."""
