// Parts that more than one page uses.
import { h, icon, replace } from "./dom.js";
import { ago, moment, plural } from "./format.js";
import { href, read } from "./route.js";

export function heading(title, sub, ...more) {
  return h("div", { class: "heading" },
    h("div", null, h("h1", { tabindex: "-1" }, title), sub && h("p", { class: "muted" }, sub)),
    h("div", { class: "row" }, more));
}

export function card(title, ...kids) {
  return h("section", { class: "card" }, title && h("h2", null, title), kids);
}

export function empty(title, text, command) {
  return h("div", { class: "empty" }, h("p", { class: "strong" }, title), text && h("p", null, text), command && h("code", { class: "command" }, command));
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" },
    h("p", { class: "strong" }, error.message), error.hint && h("p", { class: "muted" }, error.hint));
}

export function time(at) {
  return h("time", { datetime: at, title: moment(at) }, ago(at));
}

export function agent(name) {
  return h("span", { class: "agent" }, h("span", { class: "face", "aria-hidden": "true" }, [...(name || "?")][0].toUpperCase()), h("span", null, name || "nobody"));
}

export function chip(text, kind = "") {
  return h("span", { class: `chip ${kind}` }, text);
}

// How far the words are trusted that something was made from; nothing for a partner's.
export function origin(trust) {
  return trust && trust !== "partner" ? h("span", { class: "chip warning origin", title: "Made from the words of somebody who is trusted less than you." }, `origin: ${trust}`) : null;
}

export function button(text, onclick, kind = "", more = {}) {
  return h("button", { type: "button", class: kind, onclick, ...more }, text);
}

export function select(label, options, value, onchange, more = {}) {
  const box = h("select", { "aria-label": label, onchange: (event) => onchange(event.target.value), ...more },
    options.map(([id, text]) => h("option", { value: id }, text)));
  box.value = value;
  return box;
}

export function tabs(label, names, current, link) {
  return h("div", { class: "tabs", role: "navigation", "aria-label": label },
    names.map(([id, text]) => h("a", { href: link(id), "aria-current": id === current ? "page" : null }, text)));
}

export function toast(text, action) {
  const node = h("div", { class: "toast" }, h("span", null, text), action);
  const place = document.getElementById("toasts");
  place.append(node);
  setTimeout(() => node.remove(), action ? 12000 : 5000);
  return node;
}

export const complain = (error) => {
  if (error.name !== "AbortError") toast(error.hint ? `${error.message} (${error.hint})` : error.message).classList.add("bad");
};

// A dialog that answers with what its button gives; null when it is closed.
export function dialog(title, body, buttons) {
  return new Promise((done) => {
    let answered = null;
    const box = h("dialog", { "aria-label": title, onclose: () => { box.remove(); done(answered); } },
      h("form", { method: "dialog" }, h("h2", null, title), body,
        h("div", { class: "row end" },
          h("button", { type: "button", onclick: () => box.close() }, "Cancel"),
          buttons.map(([text, kind, value]) => h("button", { type: "submit", class: kind, onclick: (event) => {
            if (!box.querySelector("form").reportValidity()) { event.preventDefault(); return; }
            answered = typeof value === "function" ? value() : value;
          } }, text)))));
    document.body.append(box);
    box.showModal();
  });
}

export function json(value) {
  return h("pre", { class: "json", tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

export function undoButton(seq, undo) {
  if (read().at !== null) return null;
  return h("button", { type: "button", class: "quiet", onclick: () => undo(seq) }, icon("undo"), "Undo");
}

export const recordLink = (record, text) => h("a", { class: "mono", href: href(["data", record.schema || "-", record.id]) }, text ?? record.id);

// What a commit did, in sentences.
export function sentences(commit) {
  if (commit.summary.length) return commit.summary;
  const total = commit.items.length + commit.more;
  if (total !== 1) return [`${commit.author} changed ${plural(total, "record")}`];
  const [item] = commit.items;
  const verb = { put: item.rev === 1 ? "added" : "changed", delete: "deleted", forget: "forgot" }[item.op];
  return [`${commit.author} ${verb} ${item.id ?? "a record"}${item.schema ? ` (${item.schema})` : ""}`];
}

// -- differences --------------------------------------------------------------------------------------

const MOST_CELLS = 4_000_000;

// The lines of two texts side by side: [kind, left, right], kind is same, change, add or remove.
export function compare(before, after) {
  const a = lines(before), b = lines(after);
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const rows = a.slice(0, start).map((line) => ["same", line, line]);
  rows.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)));
  rows.push(...a.slice(a.length - end).map((line) => ["same", line, line]));
  return rows;
}

const lines = (text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

function middle(a, b) {
  if (a.length * b.length > MOST_CELLS) return pair(a, b);
  const width = b.length + 1, table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const rows = [];
  let i = 0, j = 0, gone = [], come = [];
  const flush = () => { rows.push(...pair(gone, come)); gone = []; come = []; };
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { flush(); rows.push(["same", a[i], b[j]]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) { gone.push(a[i]); i += 1; }
    else { come.push(b[j]); j += 1; }
  }
  flush();
  return rows;
}

function pair(gone, come) {
  const rows = [];
  for (let place = 0; place < Math.max(gone.length, come.length); place += 1) {
    const left = gone[place], right = come[place];
    rows.push([left === undefined ? "add" : right === undefined ? "remove" : "change", left, right]);
  }
  return rows;
}

const NEAR = 3;

export function sideBySide(before, after, leftName, rightName) {
  const rows = compare(before, after);
  const near = new Set();
  rows.forEach(([kind], place) => {
    if (kind !== "same") for (let each = place - NEAR; each <= place + NEAR; each += 1) near.add(each);
  });
  const body = h("tbody");
  let left = 0, right = 0, hidden = 0;
  const flush = () => {
    if (hidden) body.append(h("tr", { class: "gap" }, h("td", { colspan: "4" }, `${hidden} unchanged ${hidden === 1 ? "line" : "lines"}`)));
    hidden = 0;
  };
  rows.forEach(([kind, old, made], place) => {
    if (old !== undefined) left += 1;
    if (made !== undefined) right += 1;
    if (!near.has(place)) { hidden += 1; return; }
    flush();
    const [cutOld, cutMade] = kind === "change" ? marks(old, made) : [[old ?? ""], [made ?? ""]];
    body.append(h("tr", { class: kind },
      h("td", { class: "num" }, old === undefined ? "" : String(left)), h("td", { class: "old" }, cutOld),
      h("td", { class: "num" }, made === undefined ? "" : String(right)), h("td", { class: "new" }, cutMade)));
  });
  flush();
  if (!near.size) return h("p", { class: "muted" }, "Both say the same.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${leftName} and ${rightName}` },
    h("table", { class: "diff" },
      h("colgroup", null, h("col", { class: "n" }), h("col"), h("col", { class: "n" }), h("col")),
      h("thead", null, h("tr", null, h("th", { colspan: "2", scope: "col" }, leftName), h("th", { colspan: "2", scope: "col" }, rightName))), body));
}

// What differs inside a line: the middle, after what both begin with and before what both end with.
function marks(old, made) {
  let start = 0, end = 0;
  while (start < old.length && start < made.length && old[start] === made[start]) start += 1;
  while (end < old.length - start && end < made.length - start && old[old.length - 1 - end] === made[made.length - 1 - end]) end += 1;
  const cut = (text) => [text.slice(0, start), h("mark", null, text.slice(start, text.length - end)), text.slice(text.length - end)];
  return [cut(old), cut(made)];
}

export function fieldDiff(differences) {
  if (!differences.length) return h("p", { class: "muted" }, "No field differs.");
  const show = (value) => (value === undefined ? h("span", { class: "muted" }, "—") : typeof value === "string" ? value : JSON.stringify(value));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Differences" }, h("table", { class: "diff fields" },
    h("thead", null, h("tr", null, ["Field", "Before", "After"].map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", null, differences.map((each) => h("tr", { class: each.old === undefined ? "add" : each.new === undefined ? "remove" : "change" },
      h("th", { scope: "row", class: "mono" }, each.path), h("td", { class: "old" }, show(each.old)), h("td", { class: "new" }, show(each.new)))))));
}

// Fills a place with what a promise brings; a failure is shown in its place.
export async function into(place, load) {
  place.setAttribute("aria-busy", "true");
  try {
    replace(place, await load());
  } catch (error) {
    if (error.name === "AbortError") return;
    replace(place, failure(error));
  } finally {
    place.removeAttribute("aria-busy");
  }
}
