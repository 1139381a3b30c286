"""The morning's page: one self-contained HTML file about a run, or the same as Markdown for a pull request."""
