"""One page that shows what journals say: live from a small server, or as one file for a report. It changes nothing."""

from __future__ import annotations

from penstock.dashboard.html_page import render_live_page, render_report_page

__all__ = ["render_live_page", "render_report_page"]
