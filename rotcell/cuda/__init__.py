"""GPUs: which path the kernels take, and the check of a GPU.

- `rotcell.cuda.paths`: the paths there are, the plan's choice, and whether kernels run a call
- `rotcell.cuda.self_check`: compares the paths of a GPU with the reference before their first use
- `rotcell.cuda.short_sequence`: the sequences that are compared
- `rotcell.cuda.gpu_check`: ``python -m rotcell --check-gpu``
"""
