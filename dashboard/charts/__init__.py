"""From rows to Plotly figures: pure functions, the same for the app, the export and tests."""
