"""The narrow waist: K groups, what was measured in each, and how precisely. Everything to the right reads only this."""
