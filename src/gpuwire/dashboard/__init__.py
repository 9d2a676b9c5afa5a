"""The page that a server serves about itself, and its metrics.

Needs the extra `dashboard` (starlette, uvicorn, prometheus-client).
"""
