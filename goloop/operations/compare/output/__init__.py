"""The output of `goloop compare`: the report, and the picture of its ratios."""
