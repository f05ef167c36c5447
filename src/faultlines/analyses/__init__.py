"""The verbs: from data to a result."""
