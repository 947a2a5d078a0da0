// Overview: the store at a glance.
import { call } from "./api.js";
import { h, replace, s } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { agent, card, chip, empty, heading, into, sentences, time } from "./parts.js";
import { href } from "./route.js";

const DAYS = 14;

export const title = "Overview";
export async function show({ signal, at, live, refresh }) {
  const [status, agents, ready] = await Promise.all([
    call("store.status", { days: DAYS, commits: 0, quick: true }, { signal, at }),
    call("agent.list", {}, { signal, at }),
    call("crumb.ready", { limit: 6, explain: true }, { signal, at }),
  ]);
  live(refresh);
  if (!status.seq) {
    return [heading("Overview", where(status)), at !== null ? empty("Nothing was stored yet.", "") : empty("Nothing is stored yet.", "Let an agent remember something, and it appears here at once:", "dgent remember \"Use SQLite for the store\" --tag decision")];
  }
  // These come when they come: a commit may be large, and so may a store. Until then, what was seen last.
  const last = h("div", null, recent && at === null && latest(recent)), state = h("div"), found = h("div"), used = h("div");
  if (at === null) into(used, async () => usageCard(await call("telemetry.usage", { since: `${DAYS}d`, by: ["day", "agent"] }, { signal })));
  into(last, async () => {
    const { items } = await call("data.log", { limit: 5, records: 1, before: at === null ? null : at + 1 }, { signal });
    if (at === null) recent = items;
    return latest(items);
  });
  if (at === null) into(state, async () => {
    const { findings, ...looked } = await inspect();
    if (findings.length) replace(found, card("Findings", h("ul", { class: "list" }, findings.map((each) => h("li", null, chip(each.level, each.level), " ", each.message)))));
    return health({ ...looked, degraded: status.degraded, state: status.state });
  });
  return [
    heading("Overview", where(status), state),
    h("div", { class: "figures" },
      figure(count(status.records), "records", href(["data"])),
      things(status).map(([noun, many, to]) => figure(count(many), noun, to)),
      figure(count(status.seq), "commits", href(["timeline"])),
      at === null ? figure(bytes(status.size_bytes), "on disk") : null),
    found,
    h("div", { class: "columns" },
      card(at === null ? `Commits of the last ${DAYS} days` : `Commits of the ${DAYS} days before`, chart(status.days)),
      card("Ready work", readyList(ready)),
      card("Agents", agentList(agents.items)),
      card("Latest", last)),
    used,
  ];
}

// A large store takes a moment to look at: once in five minutes is enough.
let looked = null, when = 0, recent = null;
function inspect() {
  if (!looked || Date.now() - when > 300_000) {
    when = Date.now();
    looked = call("store.status", { commits: 0 });
    looked.catch(() => { looked = null; });
  }
  return looked;
}

const where = (status) => `${status.engine} · ${status.place}`;

function health(status) {
  if (status.degraded) return chip("store unavailable: local copy", "bad");
  if (status.state === "migrating" || status.state === "recovering") return chip(status.state, "bad");
  return status.health === "ok" ? chip("healthy", "good") : chip("needs attention", "bad");
}

function things(status) {
  const page = { block: "memory", crumb: "work", trail: "work" };
  return status.things.filter((each) => each.noun in page).map((each) => [each.count === 1 ? each.noun : each.noun + "s", each.count, href([page[each.noun]])]);
}

function figure(value, noun, to) {
  const kids = [h("span", { class: "value" }, value), h("span", { class: "muted" }, noun)];
  return to ? h("a", { class: "figure", href: to }, kids) : h("div", { class: "figure" }, kids);
}

// Calls of models and tools: the tokens of each day as bars, and what each agent used.
function usageCard({ items, total }) {
  if (!items.length) return null;
  const tokens = (each) => each.input_tokens + each.output_tokens;
  const byDay = new Map(), byAgent = new Map();
  for (const each of items) {
    byDay.set(each.day, (byDay.get(each.day) ?? 0) + tokens(each));
    const sum = byAgent.get(each.agent) ?? { calls: 0, tokens: 0, cost: 0 };
    byAgent.set(each.agent, { calls: sum.calls + each.calls, tokens: sum.tokens + tokens(each), cost: sum.cost + each.cost });
  }
  const days = Array.from({ length: DAYS }, (_, place) => {
    const at = new Date(Date.now() - (DAYS - 1 - place) * 86_400_000).toISOString().slice(0, 10);
    return { at, commits: byDay.get(at) ?? 0 };
  });
  const used = ({ calls, tokens, cost }) => `${plural(calls, "call")}, ${plural(tokens, "token")}${cost ? `, ${cost.toFixed(2)} in all` : ""}`;
  return card(`Tokens of the last ${DAYS} days`, chart(days, "token"), h("ul", { class: "list" },
    [...byAgent].map(([name, sum]) => h("li", null, name === null ? h("span", { class: "muted" }, "no agent") : agent(name), h("span", { class: "muted small" }, " ", used(sum)))),
    byAgent.size > 1 && h("li", { class: "muted small" }, "all: ", used({ calls: total.calls, tokens: tokens(total), cost: total.cost }))));
}

export function chart(days, noun = "commit") {
  const width = 560, height = 132, base = 108, gap = 6;
  const most = Math.max(1, ...days.map((each) => each.commits));
  const wide = (width - gap * (days.length - 1)) / days.length;
  const total = days.reduce((sum, each) => sum + each.commits, 0);
  const name = (at) => new Date(at).toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });
  const bars = days.map((each, place) => {
    const tall = each.commits ? Math.max(3, (each.commits / most) * (base - 20)) : 1;
    const x = place * (wide + gap);
    return s("g", null,
      s("title", null, `${name(each.at)}: ${plural(each.commits, noun)}`),
      s("rect", { x, y: 0, width: wide, height: base, class: "hit" }),
      s("rect", { x, y: base - tall, width: wide, height: tall, rx: 3, class: each.commits ? "bar" : "bar none" }),
      each.commits === most ? s("text", { x: x + wide / 2, y: base - tall - 6, "text-anchor": "middle" }, count(each.commits)) : null,
      place % 3 === (days.length - 1) % 3 ? s("text", { x: x + wide / 2, y: height - 6, "text-anchor": "middle" }, name(each.at)) : null);
  });
  const label = `${plural(total, noun)} in ${days.length} days`;
  return h("figure", { class: "chart" }, s("svg", { viewBox: `-12 0 ${width + 24} ${height}`, role: "img", "aria-label": label }, bars));
}

function readyList(ready) {
  if (!ready.items.length) return empty("Nothing is ready to be taken.", ready.explain, "dgent add \"Write the release notes\"");
  return h("ul", { class: "list" }, ready.items.map((each) => h("li", null,
    h("a", { href: href(["work", "crumb", each.id]) }, each.name || each.id),
    h("span", { class: "muted small" }, " ", each.reasons.join("; ")))));
}

function agentList(items) {
  if (!items.length) return empty("No agent is known yet.", "An agent is listed when it makes its first block.", "dgent --agent scout block create persona \"I answer briefly.\"");
  return h("ul", { class: "list" }, items.map((each) => h("li", null,
    h("a", { href: href(["memory", each.name]) }, agent(each.name)), each.status === "active" ? null : chip(each.status),
    each.description && h("span", { class: "muted small" }, " ", each.description))));
}

function latest(commits) {
  return h("ul", { class: "list" }, commits.map((each) => h("li", null,
    h("a", { href: href(["timeline", String(each.seq)]) }, sentences(each)[0]),
    h("span", { class: "muted small" }, " ", time(each.at)))));
}
