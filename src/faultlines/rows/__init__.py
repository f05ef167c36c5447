"""From rows to moments: one scan on the engine the rows are in. Knows engines, and no statistics."""
