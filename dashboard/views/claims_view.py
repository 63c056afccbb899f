"""The controls of the claims: only the filters beside it."""

from dashboard.contents.claims_page import QUESTION, TITLE, claims_page
from dashboard.views.block_renderer import render
from dashboard.views.page_frame import current_filters, page_frame

with page_frame("claims", TITLE, QUESTION) as found:
    render(claims_page(found, current_filters()))
