"""The controls of the claims: only the filters beside it."""

from dashboard.contents.claims_page import HEAD, claims_page
from dashboard.views.block_renderer import render
from dashboard.views.page_frame import current_filters, page_frame

with page_frame(HEAD) as found:
    render(claims_page(found, current_filters()))
