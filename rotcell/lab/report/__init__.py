"""Statistics of runs; what is shown of a task's runs is the task's own."""
