// Work: the board, the queue, trails, lessons, and the graph of all of it.
import { call } from "./api.js";
import { h } from "./dom.js";
import { ago, count, duration, moment, plural } from "./format.js";
import { draw } from "./graph.js";
import { agent as face, button, card, chip, complain, dialog, empty, heading, tabs, time, toast } from "./parts.js";
import { go, href, read } from "./route.js";
import { undo } from "./timeline.js";

const TABS = [["board", "Board"], ["ready", "Ready"], ["trails", "Trails"], ["lessons", "Lessons"], ["graph", "Graph"]];
const STATES = ["draft", "pending", "ready", "taken", "pebble", "dust"];
const MEANING = { draft: "not offered yet", pending: "waits for somebody", ready: "can be taken", taken: "somebody works on it", pebble: "done", dust: "given up" };
const MOST_DRAWN = 1500;

export const title = "Work";

export async function show(page) {
  const tab = TABS.some(([id]) => id === page.parts[0]) ? page.parts[0] : "board";
  if (page.parts[0] === "crumb" && page.parts[1]) return crumbPage(page, page.parts[1]);
  if (page.parts[0] === "trail" && page.parts[1]) return trailPage(page, page.parts[1]);
  const body = await { board, ready, trails, lessons, graph }[tab](page);
  return [heading("Work", "What is to be done, who does it, and what was learned.", page.at === null ? button("New crumb", () => create(page)) : null), tabs("Views of the work", TABS, tab, (id) => href(["work", id])), body];
}

const nothing = () => read().at !== null ? empty("There was no work yet.", "") : empty("There is no work yet.", "A crumb is a piece of work. Make one here, or let an agent do it:", "dgent add \"Write the release notes\"");
const name = (crumb) => crumb.name || crumb.short_id || crumb.id;

// -- the board ----------------------------------------------------------------------------------------

async function board({ signal, at, live, leave, refresh }) {
  const { columns } = await call("crumb.board", { limit: 50 }, { signal, at });
  live(refresh);
  if (!columns.some((each) => each.count)) return nothing();
  leave(tick());
  return [
    at === null ? h("p", { class: "muted small" }, "Drag a card to another column, or move it with Alt + ← and →.") : null,
    h("div", { class: "board" }, columns.map((column) => h("section", { class: "column", "data-state": column.state, "aria-label": `${column.state}: ${MEANING[column.state]}`,
      ondragover: (event) => { if (at !== null) return; event.preventDefault(); event.currentTarget.classList.add("over"); },
      ondragleave: (event) => event.currentTarget.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        event.currentTarget.classList.remove("over");
        const [id, from] = JSON.parse(event.dataTransfer.getData("application/x-crumb") || "[]");
        if (id) move(id, from, column.state, refresh);
      } },
      h("h2", { title: MEANING[column.state] }, column.state, " ", h("span", { class: "muted" }, count(column.count))),
      column.crumbs.map((each) => tile(each, column.state, refresh)),
      column.count > column.crumbs.length ? h("p", { class: "muted small" }, `and ${count(column.count - column.crumbs.length)} more`) : null))),
  ];
}

function tile(crumb, state, refresh) {
  return h("a", { class: "tile", href: href(["work", "crumb", crumb.id]), draggable: read().at === null ? "true" : null, id: `crumb-${crumb.id}`,
    ondragstart: (event) => { event.dataTransfer.setData("application/x-crumb", JSON.stringify([crumb.id, state])); event.dataTransfer.effectAllowed = "move"; },
    onkeydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!event.altKey || !by || read().at !== null) return;
      event.preventDefault();
      const to = STATES[STATES.indexOf(state) + by];
      if (to) move(crumb.id, state, to, refresh);
    } },
    h("span", { class: "strong" }, name(crumb)),
    h("span", { class: "meta" }, properties(crumb), crumb.open_parents ? chip(`waits for ${crumb.open_parents}`, "warning") : null, holder(crumb)));
}

function properties(crumb) {
  const { priority, type, labels } = crumb.properties;
  return [priority && priority !== "none" ? chip(String(priority)) : null, type && type !== "task" ? chip(String(type), "accent") : null, (Array.isArray(labels) ? labels : []).map((each) => chip(String(each)))];
}

function holder(crumb) {
  if (!crumb.holder) return null;
  return [face(crumb.holder), crumb.lease_until ? h("span", { class: "lease", "data-until": crumb.lease_until }, left(crumb.lease_until)) : null];
}

function left(until) {
  if (read().at !== null) return `lease until ${moment(until)}`;
  const seconds = (new Date(until) - Date.now()) / 1000;
  return seconds > 0 ? `lease ${seconds < 3600 ? `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}` : duration(seconds)}` : `lease ended ${ago(until)}`;
}

function tick() {
  const timer = setInterval(() => { for (const each of document.querySelectorAll("[data-until]")) each.textContent = left(each.dataset.until); }, 1000);
  return () => clearInterval(timer);
}

// The verb that brings a crumb from one state to another.
function step(from, to) {
  if (to === "taken") return ["crumb.take", {}];
  if (to === "pebble") return ["crumb.done", {}];
  if (to === "dust") return ["crumb.drop", {}];
  if (to === "ready" && from === "taken") return ["crumb.release", {}];
  if (to === "ready" && (from === "pebble" || from === "dust")) return ["crumb.reopen", {}];
  return ["crumb.set", { state: to }];
}

async function move(id, from, to, refresh) {
  if (from === to) return;
  const [verb, more] = step(from, to);
  try {
    const moved = await call(verb, { id, ...more });
    toast(`${name(moved)}: ${from} → ${to}`);
    await refresh();
  } catch (error) { complain(error); }
}

async function create(page) {
  const what = h("input", { id: "what", required: true, autocomplete: "off" });
  const priority = h("select", { id: "priority" }, ["", "highest", "high", "medium", "low", "lowest"].map((each) => h("option", { value: each }, each || "no priority")));
  const body = h("div", null, h("div", { class: "field" }, h("label", { for: "what" }, "What is to be done"), what), h("div", { class: "field" }, h("label", { for: "priority" }, "Priority"), priority));
  if (await dialog("A new crumb", body, [["Add", "primary", true]]) === null) return;
  try { await call("crumb.add", { text: what.value, priority: priority.value }); page.refresh(); } catch (error) { complain(error); }
}

// -- the queue ----------------------------------------------------------------------------------------

async function ready({ signal, at, live, leave, refresh }) {
  const [queue, blocked] = await Promise.all([call("crumb.ready", { limit: 50, explain: true }, { signal, at }), call("crumb.blocked", { limit: 50 }, { signal, at })]);
  live(refresh);
  leave(tick());
  const row = (each, place) => h("li", { class: "row" },
    h("span", { class: "mono muted" }, String(place + 1)),
    h("span", { class: "grow" }, h("a", { class: "strong", href: href(["work", "crumb", each.id]) }, name(each)), " ", properties(each), h("br"), h("span", { class: "muted small" }, each.reasons.join("; "))),
    holder(each));
  return h("div", { class: "columns" },
    card("In the order in which it is taken", queue.items.length ? h("ol", { class: "list" }, queue.items.map(row)) : empty("Nothing is ready to be taken.", queue.explain)),
    card("Waits for other work", blocked.items.length ? h("ol", { class: "list" }, blocked.items.map(row)) : empty("Nothing waits for anything.", "")));
}

// -- trails -------------------------------------------------------------------------------------------

async function trails({ signal, at, live, refresh }) {
  const { items } = await call("trail.list", {}, { signal, at });
  live(refresh);
  if (!items.length && at !== null) return empty("There were no trails yet.", "");
  if (!items.length) return empty("There are no trails yet.", "On a trail an agent tries something: it is kept as a whole, or given up as a whole.", "dgent explore \"try a cache\"");
  return h("ul", { class: "list card" }, items.map((each) => h("li", { class: "row" },
    chip(each.state, each.state), h("span", { class: "grow" }, h("a", { class: "strong", href: href(["work", "trail", each.id]) }, name(each)), each.goal ? h("span", { class: "muted" }, ` ${each.goal}`) : null, each.lesson ? h("p", { class: "small" }, `Lesson: ${each.lesson}`) : null), each.updated_at && time(each.updated_at))));
}

async function trailPage({ signal, at, live, leave, refresh }, id) {
  const trail = await call("trail.get", { id }, { signal, at });
  live(refresh);
  leave(tick());
  const ended = trail.state === "completed" || trail.state === "abandoned";
  return [
    heading(name(trail), trail.goal, chip(trail.state, trail.state),
      ended || at !== null ? null : [button("Complete", () => end(trail, true, refresh)), button("Abandon", () => end(trail, false, refresh), "danger")]),
    trail.lesson || trail.reason ? card("How it ended", trail.reason && h("p", null, trail.reason), trail.lesson && h("p", { class: "strong" }, trail.lesson)) : null,
    trail.branches_from ? h("p", null, "It began at ", link(trail.branches_from), ".") : null,
    card("Crumbs", crumbs([...trail.crumbs, ...trail.kept]), trail.removed ? h("p", { class: "muted" }, `${plural(trail.removed, "crumb was", "crumbs were")} removed when it was abandoned.`) : null),
    trail.stashes.length ? card("Stashes", h("ul", { class: "list" }, trail.stashes.map((each) => h("li", null, each.name, " ", chip(each.type), " ", h("code", null, JSON.stringify(each.value)))))) : null,
    h("p", null, h("a", { href: href(["work", "trails"]) }, "All trails")),
  ];
}

const link = (each) => h("a", { href: href(["work", "crumb", each.id]) }, name(each));
const crumbs = (items) => (items.length ? h("ul", { class: "list" }, items.map((each) => h("li", { class: "row" }, chip(each.state, each.state), h("span", { class: "grow" }, link(each)), holder(each)))) : h("p", { class: "muted" }, "None."));

async function end(trail, keep, refresh) {
  const reason = h("input", { id: "reason", autocomplete: "off" }), lesson = h("input", { id: "lesson", autocomplete: "off" });
  const goes = [...trail.crumbs.map((each) => `${name(each)} (${each.state})`), ...trail.stashes.map((each) => `${each.name} (${each.type})`)];
  const body = h("div", null,
    h("p", null, keep ? `${plural(trail.crumbs.length, "crumb becomes", "crumbs become")} permanent work:` : goes.length ? `This removes ${plural(trail.crumbs.length, "crumb")}${trail.stashes.length ? ` and ${plural(trail.stashes.length, "stash", "stashes")}` : ""}. Undo brings them back:` : "It has nothing that would be removed."),
    h("ul", { class: "list" }, goes.map((each) => h("li", null, each))),
    keep ? null : [h("div", { class: "field" }, h("label", { for: "reason" }, "Why is it given up?"), reason), h("div", { class: "field" }, h("label", { for: "lesson" }, "What was learned? It stays."), lesson)]);
  if (await dialog(`${keep ? "Complete" : "Abandon"} “${name(trail)}”?`, body, [[keep ? "Complete it" : "Abandon it", keep ? "primary" : "danger", true]]) === null) return;
  try {
    const done = keep ? await call("trail.complete", { id: trail.id }) : await call("trail.abandon", { id: trail.id, reason: reason.value, lesson: lesson.value });
    toast(keep ? "Completed." : `Abandoned: ${plural(done.crumbs.length, "crumb")} removed.`, done.seq ? button("Undo", () => undo(done.seq, refresh)) : null);
    refresh();
  } catch (error) { complain(error); }
}

async function lessons({ signal, at, live, refresh, params }) {
  const { items } = await call("trail.lessons", { words: params.q ?? "", limit: 100 }, { signal, at });
  live(refresh);
  const field = h("input", { type: "search", id: "words", value: params.q ?? "", placeholder: "Words", "aria-label": "Words", onchange: () => go(["work", "lessons"], { q: field.value }) });
  return [
    h("div", { class: "filters" }, field),
    items.length ? h("ul", { class: "list card" }, items.map((each) => h("li", null, h("p", { class: "strong" }, each.lesson || each.reason || "No lesson was written down."), h("p", { class: "meta" }, h("a", { href: href(["work", "trail", each.id]) }, name(each)), each.goal, each.completed_at && time(each.completed_at)))))
      : empty("There are no lessons yet.", "When a trail is abandoned, what was learned stays here."),
  ];
}

// -- the graph ----------------------------------------------------------------------------------------

async function graph({ signal, at, live, refresh, params }) {
  const [all, { columns }] = await Promise.all([call("trail.list", { limit: 200 }, { signal, at }), call("crumb.board", { limit: 1 }, { signal, at })]);
  const total = columns.reduce((sum, each) => sum + each.count, 0);
  const trail = params.trail ?? "";
  const choose = h("select", { "aria-label": "Trail", id: "trail", onchange: () => go(["work", "graph"], { trail: choose.value }) }, h("option", { value: "" }, "Everything"), all.items.map((each) => h("option", { value: each.id }, name(each))));
  choose.value = trail;
  const controls = h("div", { class: "filters" }, choose);
  if (!total && !all.items.length) return nothing();
  if (!trail && total > MOST_DRAWN) return [controls, empty(`${count(total)} crumbs are too many to draw.`, "Choose a trail.")];
  const found = await call("cupboard.graph", { trail }, { signal, at });
  live(refresh);
  return [controls, found.graph.nodes.length ? draw(found.graph, (node) => { if (node.kind !== "stash") go(["work", node.kind, node.id]); }) : nothing()];
}

// -- one crumb ----------------------------------------------------------------------------------------

const LINKS = { trail: "On the trail", origin: "Came from the trail", parents: "Waits for", children: "Others wait for it", part_of: "Part of", parts: "Parts", related: "Related", discovered_from: "Discovered from", led_to: "Led to", duplicate_of: "Duplicate of", duplicates: "Duplicates", supersedes: "Supersedes", superseded_by: "Superseded by" };

async function crumbPage({ signal, at, live, leave, refresh }, id) {
  const [crumb, past] = await Promise.all([call("crumb.get", { id }, { signal, at }), call("crumb.history", { id }, { signal, at })]);
  live(refresh);
  leave(tick());
  const links = Object.entries(LINKS).map(([key, text]) => [key, text, [crumb[key] ?? []].flat()]).filter(([, , list]) => list.length);
  const shown = Object.entries(crumb.properties).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
  const said = h("input", { id: "comment", placeholder: "Comment", "aria-label": "Comment", class: "grow", autocomplete: "off", required: true });
  const comment = async (event) => {
    event.preventDefault();
    try { await call("metadata.comment", { id: crumb.id, text: said.value }); refresh(); } catch (error) { complain(error); }
  };
  const others = STATES.filter((each) => each !== crumb.state);
  return [
    heading(name(crumb), crumb.short_id || crumb.id, chip(crumb.state, crumb.state), holder(crumb), at !== null ? null : h("select", { "aria-label": "Move to another state", id: "state", onchange: (event) => move(crumb.id, crumb.state, event.target.value, refresh) }, h("option", { value: crumb.state }, "Move to…"), others.map((each) => h("option", { value: each }, `${each}: ${MEANING[each]}`)))),
    h("p", { class: crumb.ready ? "" : "muted" }, crumb.reasons.join("; ")),
    h("div", { class: "columns" },
      card("Properties", shown.length ? h("dl", { class: "facts" }, shown.map(([key, value]) => [h("dt", null, key), h("dd", null, typeof value === "string" ? value : JSON.stringify(value))])) : h("p", { class: "muted" }, "None.")),
      card("Links", links.length ? h("dl", { class: "facts" }, links.map(([key, text, list]) => [h("dt", null, text), h("dd", null, list.map((each) => h("p", null, h("a", { href: href(["work", key === "trail" || key === "origin" ? "trail" : "crumb", each.id]) }, name(each)), " ", chip(each.state, each.state))))])) : h("p", { class: "muted" }, "None.")),
      card("Comments", h("ul", { class: "list" }, crumb.metadata.map((each) => h("li", null, h("p", null, each.content), h("p", { class: "meta" }, each.author && face(each.author), each.schema === "comments" ? null : chip(each.schema), each.created_at && time(each.created_at))))), at !== null ? null : h("form", { class: "row", onsubmit: comment }, said, h("button", null, "Add"))),
      card("History", h("ul", { class: "list" }, past.items.map((each) => h("li", { class: "row" }, h("a", { class: "grow", href: href(["timeline", String(each.seq)]) }, each.crumb ? `${each.crumb.state}: ${name(each.crumb)}` : "deleted"), h("span", { class: "meta" }, each.author && face(each.author), time(each.at))))))),
    h("p", null, h("a", { href: href(["work"]) }, "The board")),
  ];
}

