"""What `tools/docs` adds to mkdocs."""
