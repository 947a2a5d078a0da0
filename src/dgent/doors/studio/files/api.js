// Calls of verbs, and the feed of commits.
export const constellation = new URLSearchParams(location.search).get("c") ?? "";
const base = constellation ? `/${encodeURIComponent(constellation)}` : "";

export class Failure extends Error {
  constructor(status, body) {
    super(body.error || `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
  }
}

async function ask(path, options) {
  let answer, body = {};
  try {
    answer = await fetch(base + path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { code: "offline", error: "The server cannot be reached.", hint: "Is “dgent studio” still running?" });
  }
  try { body = await answer.json(); } catch { /* not JSON: the status says it */ }
  if (answer.status === 401) leave();
  if (!answer.ok || body.ok === false) throw new Failure(answer.status, body);
  return body.data;
}

function leave(how = "") {
  const kept = constellation ? `c=${encodeURIComponent(constellation)}` : "";
  const query = [how, kept].filter(Boolean).join("&");
  location.replace("/login" + (query ? "?" + query : ""));
}

const HEADERS = { "Content-Type": "application/json", "X-Dgent-Studio": "1" };
const MAY_BE_EMPTY = new Set(["text", "value"]);  // what a block says; elsewhere an empty field asks for nothing

// With `at` it asks for what was at that commit.
export function call(verb, input = {}, { agent, signal, at = null } = {}) {
  const headers = { ...HEADERS };
  if (agent) headers["X-Dgent-Agent"] = encodeURIComponent(agent);
  const given = Object.fromEntries(Object.entries(input).filter(([name, value]) => value !== null && value !== undefined && (value !== "" || MAY_BE_EMPTY.has(name))));
  if (at !== null) given.as_of = String(at);
  return ask(`/v1/verbs/${verb}`, { method: "POST", headers, body: JSON.stringify(given), signal });
}

// Answers of agents, which come event by event.
export const stream = {
  post: (path, body) => ask(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body) }),

  async send(path, body, { begun, event }) {
    const answer = await fetch(base + path, { method: "POST", headers: HEADERS, body: JSON.stringify(body), cache: "no-store" });
    if (answer.status === 401) leave();
    if (!answer.ok) throw new Failure(answer.status, await answer.json().catch(() => ({})));
    begun(answer.headers.get("X-Dgent-Turn"));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (held + value).split("\n\n");
      held = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        if (data) event(JSON.parse(data));
      }
    }
  },
};

// Schemas with their counts, which a large store takes a moment to count: asked for at most twice a minute,
// and again for one that is not among them.
let counted = null, when = 0;
export async function schemas(wanted = null) {
  const known = counted && Date.now() - when <= 30_000 ? await counted : null;
  if (!known || (wanted !== null && !known.some((each) => each.name === wanted))) {
    when = Date.now();
    counted = call("data.schemas").then((found) => found.items);
    counted.catch(() => { counted = null; });
  }
  return counted;
}

export const whoAmI = () => ask("/v1/constellations", {});

export async function signOut() {
  await fetch("/logout", { method: "POST", headers: { "X-Dgent-Studio": "1" } });
  leave("out=1");
}

// -- the feed: one connection for all of the page, closed while nobody looks ------------------------

const heard = new Set();
const told = new Set();
let source = null, last = null;

export const feed = { live: false };

function tell(live) {
  feed.live = live;
  for (const each of told) each(live);
}

export function onState(listen) { told.add(listen); }

export function onCommit(listen) {
  heard.add(listen);
  return () => heard.delete(listen);
}

function connect() {
  if (source) return;
  source = new EventSource(`${base}/v1/changes${last === null ? "" : `?from_seq=${last}`}`);
  source.addEventListener("open", () => tell(true));
  source.addEventListener("error", () => {
    tell(false);
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => { if (!document.hidden) connect(); }, 3000);
    }
  });
  source.addEventListener("commit", (event) => {
    const entry = JSON.parse(event.data);
    if (entry.seq !== null) last = entry.seq;
    for (const each of [...heard]) each(entry);
  });
}

export function follow(seq) {
  last = seq;
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else connect();
  });
}
