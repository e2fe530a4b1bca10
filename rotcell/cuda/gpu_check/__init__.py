"""``python -m rotcell --check-gpu``: the first run on a GPU, and one file to send us.

- `machine`: the device, and how a path is forced on it
- `checks`: what is checked: every path, cell and type against the reference, determinism, streams,
  graphs; what the self-check costs
- `timings`: every path compared with torch's layers (cuDNN), and what the plan chose
- `worker`: runs them one after the other, in a separate process that may crash or hang
- `collect`: starts workers, restarts them after a crash, and gathers their results
- `summary`: the results in readable form
"""
