"""The page at /docs: shows the OpenAPI document, lets one try it, and loads nothing from another host."""

from fastapi import APIRouter
from starlette.responses import HTMLResponse, RedirectResponse

router = APIRouter(include_in_schema=False)

_PAGE = r"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Platform API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430 }
  h2 { margin-top: 2rem; text-transform: capitalize; border-bottom: 1px solid #d5dbe3 }
  details { border: 1px solid #d5dbe3; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem }
  summary { cursor: pointer } code, pre { font: 13px/1.5 ui-monospace, monospace }
  pre { background: #f4f6f9; padding: .6rem; overflow: auto; border-radius: 4px }
  pre.curl, pre.answer { white-space: pre-wrap; overflow-wrap: anywhere } pre:empty { display: none }
  details input, textarea { display: block; width: 100%; box-sizing: border-box; margin: .3rem 0 }
  .method { display: inline-block; width: 4.2rem; font-weight: 600 } .what { color: #5a6675; margin-left: .6rem }
</style></head><body>
<h1>Platform API</h1>
<p>Requests need the header <code>Authorization: Bearer KEY</code>; <code>platform keys issue</code> makes a key.
Programs read <a href="/openapi.json">/openapi.json</a>.</p>
<p>To try a path on this page, paste a key:
<input id="key" size="40" type="password" placeholder="pk_…" autocomplete="off" aria-label="API key"></p>
<p>A command works in a shell in which <code>KEY</code> is set: <code>export KEY=pk_…</code>. Words in capitals, such as
<code>CHAIN_ID</code>, are ids to fill in; when an answer on this page has one, it is filled in everywhere.</p>
<main id="paths">Loading …</main>
<script>
const element = (name, text, parent, kind) => {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  if (kind) made.className = kind;
  parent?.append(made);
  return made;
};
const show = (title, value, parent) => {
  if (value === undefined || (Array.isArray(value) && !value.length)) return;
  element("div", title, parent);
  element("pre", JSON.stringify(value, null, 2), parent);
};
const curlOf = operation => operation["x-codeSamples"]?.[0]?.source ?? "";
// Commands and addresses whose capitals await an id, and the ids that answers had: chainId is CHAIN_ID.
const awaiting = [], known = {};
const fill = text => text.replace(/\b[A-Z]+_ID\b/g, name => known[name] ?? name);
const learn = answer => {
  // the first of several counts: lists have the newest on top
  const found = [...answer.matchAll(/"(\w+)Id":"?([\w-]+)/g)].reverse();
  for (const [, name, id] of found) known[name.toUpperCase() + "_ID"] = id;
  for (const { text, write } of awaiting) write(fill(text));
};
const awaitIds = (text, write) => { if (/[A-Z]_ID\b/.test(text)) awaiting.push({ text, write }); write(fill(text)); };
// "Try it" sends what the curl command says: its address, method and body, as somebody has edited them.
const addTry = (operation, method, box) => {
  const command = curlOf(operation), body = command.match(/ -d '([^]*)'$/)?.[1].replaceAll("'\\''", "'");
  const address = element("input", "", box);
  let shown = "";
  const show = text => { if (address.value === shown) address.value = shown = text; };  // what somebody typed stays
  awaitIds(command.match(/'([^']*)'/)[1].replace("http://127.0.0.1:8000", ""), show);
  const text = body === undefined ? null : element("textarea", body, box);
  if (text) text.rows = 4;
  const button = element("button", "Try it", box), answer = element("pre", "", box, "answer");
  button.onclick = async () => {
    const headers = { "Authorization": "Bearer " + document.getElementById("key").value };
    if (text) headers["Content-Type"] = "application/json";
    try {
      const got = await fetch(address.value, { method: method.toUpperCase(), headers, body: text?.value });
      const content = await got.text();
      answer.textContent = got.status + " " + got.statusText + "\n" + content;
      if (got.ok && address.value.startsWith("/api/v1/")) learn(content);
    } catch (error) { answer.textContent = "no answer: " + error; }
  };
};
fetch("/openapi.json").then(answer => answer.json()).then(api => {
  const groups = {};
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods))
      (groups[operation.tags?.[0] ?? "other"] ??= []).push({ path, method, operation });
  const main = document.getElementById("paths");
  main.textContent = "";
  for (const [group, operations] of Object.entries(groups)) {
    element("h2", group, main);
    for (const { path, method, operation } of operations) {
      const box = element("details", "", main);
      const line = element("summary", "", box);
      element("span", method.toUpperCase(), line, "method");
      element("code", path, line);
      element("span", operation.summary, line, "what");
      if (operation.description) element("p", operation.description, box);
      const curl = element("pre", "", box, "curl");
      awaitIds(curlOf(operation).replace("http://127.0.0.1:8000", location.origin), text => curl.textContent = text);
      addTry(operation, method, box);
      const scopes = operation["x-scopes"] ?? [];
      if (scopes.length) element("p", "The key needs the scope " + scopes.join(" or ") + ".", box);
      show("Parameters", operation.parameters, box);
      show("Body", operation.requestBody?.content, box);
      show("Answers", operation.responses, box);
    }
  }
  if (api.components?.schemas) {
    element("h2", "schemas", main);
    for (const [name, schema] of Object.entries(api.components.schemas)) {
      const box = element("details", "", main);
      element("summary", name, box);
      element("pre", JSON.stringify(schema, null, 2), box);
    }
  }
}).catch(error => { document.getElementById("paths").textContent = "The API description did not load: " + error; });
</script></body></html>
"""


@router.get("/")
async def root() -> RedirectResponse:
    return RedirectResponse("/docs")


@router.get("/docs")
async def docs() -> HTMLResponse:
    policy = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": policy})
