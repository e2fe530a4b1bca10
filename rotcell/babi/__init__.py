"""The bAbI question answering tasks: data, task generator, and what is built on them."""
