"""From a result to a decision."""
