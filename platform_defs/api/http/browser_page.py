"""What a person sees who opens a link to the API in a browser, which sends no key: how to read what is behind it."""

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from platform_defs.api.http.errors import ApiError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>An API key is needed</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46em; margin: 3em auto; padding: 0 1em }}
pre {{ background: #f3f3f3; padding: .8em; overflow-x: auto }}</style></head><body>
<h1>An API key is needed</h1>
<p><code>{path}</code> is a page of the API, and a browser sends no key. Read it with one:</p>
<pre>curl {url} -H "Authorization: Bearer $KEY"</pre>
<p>A key is issued on the platform's machine:</p>
<pre>platform keys issue me --scopes arrivals:read</pre>
<p>{command}<a href="/docs">/docs</a> describes every page, and lets you try it with your key.</p>
</body></html>
"""
_TASK = "There, <code>platform models tasks MODEL</code> also lists the executions of a model, without a key. "


def page_without_key(request: Request, error: ApiError) -> Response | None:
    """The page, for a browser that was refused because it sent no key; None for everybody else."""
    wants_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status != 401 or not wants_page or {"authorization", "x-api-key"} & set(request.headers):
        return None
    command = _TASK if "/kpi/tasks/" in request.url.path else ""
    text = _PAGE.format(path=escape(request.url.path), url=escape(_quoted(str(request.url))), command=command)
    return HTMLResponse(text, 401, headers=error.headers)


def _quoted(url: str) -> str:
    return "'" + url.replace("'", "%27") + "'"
