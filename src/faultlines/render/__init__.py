"""The words, and the text, Markdown, JSON, chart and page made of them; every output reads a result."""
