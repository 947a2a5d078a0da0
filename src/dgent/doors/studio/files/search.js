// Search: one list over records, crumbs, blocks and all else, with why each was found.
import { call } from "./api.js";
import { h } from "./dom.js";
import { brief } from "./format.js";
import { chip, empty, heading, origin, select, time } from "./parts.js";
import { go, href } from "./route.js";

export const title = "Search";
const ALL = "_constellation_";  // the owner of blocks that belong to everyone
const LIMIT = 30;
const MODES = [["auto", "by words, and by meaning where it can"], ["text", "by words"], ["meaning", "by meaning"]];

export async function show({ params, at, signal }) {
  const words = params.q ?? "";
  const field = h("input", { type: "search", id: "words", class: "grow", value: words, placeholder: "What do you look for?", "aria-label": "Words", autocomplete: "off" });
  const form = h("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); go(["search"], { ...params, q: field.value }); } },
    field, select("How", MODES, params.mode ?? "auto", (mode) => go(["search"], { ...params, mode: mode === "auto" ? null : mode })), h("button", { class: "primary" }, "Search"));
  const top = [heading("Search", at === null ? "Everything that your agents wrote down." : `Everything as of commit ${at}.`), form];
  if (!words.trim()) {
    requestAnimationFrame(() => field.focus());
    return [...top, empty("Look for anything.", "Words, a \"whole phrase\", or the beginning of a word with a star: begin*")];
  }
  const found = await call("data.search", { words, limit: LIMIT, explain: true, mode: params.mode, as_of: at === null ? null : String(at) }, { signal });
  return [
    ...top,
    found.building ? h("p", { class: "note" }, "The index is being built: there may be more in a moment.") : null,
    found.note ? h("p", { class: "muted" }, found.note) : null,
    found.items.length ? h("ol", { class: "hits" }, found.items.map((each) => hit(each)))
      : empty(`Nothing was found for “${brief(words, 60)}”.`, found.explain || "Try fewer words, or the beginning of one with a star."),
  ];
}

function hit(each) {
  const parts = Object.entries(each.parts ?? {}).sort((a, b) => b[1] - a[1]);
  return h("li", { class: "card" },
    h("div", { class: "row" }, chip(each.kind, "accent"), h("a", { class: "strong grow", href: where(each) }, each.name || each.id), origin(each.origin), each.detail ? chip(each.detail) : null, each.record.updated_at ? h("span", { class: "muted small" }, time(each.record.updated_at)) : null),
    h("p", { class: "snippet" }, marked(each.snippet, each.marks ?? [])),
    h("div", { class: "why", role: "img", "aria-label": `score ${each.score.toFixed(2)}` }, h("span", { class: "fill", css: { width: `${Math.round(each.score * 100)}%` } })),
    h("p", { class: "meta" }, `score ${each.score.toFixed(2)}`, parts.map(([word, share]) => chip(`${word} ${share.toFixed(2)}`))));
}

function where(each) {
  if (each.kind === "block") return each.detail === ALL ? href(["memory", "-", each.name], { owner: ALL }) : href(["memory", each.detail || "-", each.name]);
  if (each.kind === "crumb") return href(["work", "crumb", each.id]);
  if (each.kind === "trail" || each.kind === "lesson") return href(["work", "trail", each.id]);
  if (each.kind === "comment") return href(["work", "crumb", each.id]);
  return href(["data", each.record.schema || "-", each.record.id]);
}

function marked(text, marks) {
  const letters = [...text], nodes = [];
  let at = 0;
  for (const [start, end] of marks) {
    if (start < at) continue;
    nodes.push(letters.slice(at, start).join(""), h("mark", null, letters.slice(start, end).join("")));
    at = end;
  }
  return [...nodes, letters.slice(at).join("")];
}
