// The address: #/page/part/part?name=value. `at` is the commit that the pages show, if it is not the newest.
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const params = Object.fromEntries(new URLSearchParams(query));
  const parts = path.split("/").filter(Boolean).map(decode);
  return { page: parts[0] || "overview", parts: parts.slice(1), params, at: number(params.at) };
}

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

const number = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);

export function href(parts, params = {}) {
  const at = "at" in params ? params.at : read().at;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...params, at })) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? "?" + query : ""}`;
}

export function go(parts, params) {
  location.hash = href(parts, params);
}

export function put(params) {
  const now = read();
  history.replaceState(null, "", href([now.page, ...now.parts], params));
}
