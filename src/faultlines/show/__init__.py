"""Text, Markdown, JSON, picture and page: every output reads the summary of a result, and none calls another."""
