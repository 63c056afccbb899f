"""Measures and explains a training step; knows no scenario, no optimization and no Streamlit."""
