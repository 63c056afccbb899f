"""Streamlit views and the static export; reads records only."""
