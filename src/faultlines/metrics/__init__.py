"""What is measured in a group: the columns a metric needs, and how their moments become an estimate.

A metric is a function in `experiment`, `population` or `model`, and a line in `table`.
"""
