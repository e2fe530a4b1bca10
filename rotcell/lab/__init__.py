"""The lab: tasks to train recurrent layers on, and what runs and compares them.

A task is a module of `rotcell.lab.tasks`, found by its name. `training` trains, `sweep` runs many
trainings, `report` compares their results, `cli` is the command line, rotcell-lab.
"""
