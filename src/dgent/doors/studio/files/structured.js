// Blocks that are no texts: fields, items, entries, nodes and counts, each edited by itself.
import { h } from "./dom.js";
import { brief } from "./format.js";
import { button, card, chip } from "./parts.js";

const KINDS = { map: "field", list: "item", tree: "node", log: "entry" };
const PLAIN = ["text", "timestamp"];  // types of fields that are written as they are

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const write = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

// What was typed, as a value: a text where it was one before, or is no JSON.
export function read(text, before, type) {
  if (PLAIN.includes(type) || (typeof before === "string" && !type)) return text;
  try { return JSON.parse(text); } catch { return text; }
}

// `edit(change)` opens the editor, `act(title, verb, input)` asks why and does it.
export function structured(found, info, { edit, act, may, adds }) {
  const sections = info.sections.length
    ? info.sections.map((each) => ({ name: each.name, document: each.document, fields: each.fields ?? [], closed: each.read_only }))
    : [{ name: null, document: info.card.document, fields: info.fields, closed: false }];
  return sections.map((section) => {
    const place = { ...section, edit, act, may: may && !section.closed, adds: adds && !section.closed, of: (view) => (section.name === null ? view.value : view.value[section.name]), more: section.name === null ? {} : { section: section.name } };
    const body = (DRAW[section.document] ?? plain)(place.of(found), place);
    return section.name === null ? body : card(section.name, section.closed ? chip("read only") : null, body);
  });
}

const plain = (value) => h("pre", { class: "json", tabindex: "0" }, JSON.stringify(value, null, 2));
const tools = (place, ...buttons) => (place.may ? h("span", { class: "row" }, buttons) : null);
const adding = (place, text, change) => (place.adds ? button(text, () => place.edit(change), "primary") : null);
const shown = (value) => h("span", { class: "grow item" }, typeof value === "string" ? value : JSON.stringify(value));
const none = (place) => h("p", { class: "muted" }, `It has no ${KINDS[place.document] ?? "value"} yet.`);
const hint = (fields) => (fields.length ? `As JSON, with ${fields.map((each) => `${each.name} (${each.type}${each.required ? ", required" : ""})`).join(", ")}.` : "A text, or JSON.");
const blank = (fields) => (fields.length ? JSON.stringify(Object.fromEntries(fields.filter((each) => each.required).map((each) => [each.name, each.type === "boolean" ? false : each.type === "number" || each.type === "integer" ? 0 : ""])), null, 2) : "");

function drawText(value, place) {
  const change = { name: `Text of ${place.name}`, value: value.content, verb: "block.write", theirs: (view) => place.of(view).content, input: (text) => ({ ...place.more, text }) };
  return [h("pre", { class: "text", tabindex: "0" }, value.content), tools(place, button("Edit", () => place.edit(change)))];
}

function drawMap(value, place) {
  const type = (name) => place.fields.find((each) => each.name === name);
  const change = (name) => ({
    name: `Field ${name}`, hint: type(name)?.description, value: write(value[name] ?? ""), verb: "block.set-field",
    theirs: (view) => write(place.of(view)[name] ?? ""), input: (text) => ({ ...place.more, field: name, value: read(text, value[name], type(name)?.type) }) });
  const names = [...new Set([...place.fields.map((each) => each.name), ...Object.keys(value)])];
  const row = (name) => h("li", { class: "row", "data-field": name }, h("span", { class: "strong" }, name), value[name] === undefined ? h("span", { class: "grow muted" }, "—") : shown(value[name]),
    type(name)?.read_only ? chip("read only") : tools(place,
      type(name)?.type === "counter" ? button("Add 1", () => place.act(`Add 1 to ${name}`, "block.increment", { ...place.more, field: name, amount: 1 }), "quiet") : button("Edit", () => place.edit(change(name)), "quiet", { "aria-label": `Edit ${name}` }),
      value[name] === undefined || type(name)?.required ? null : button("Clear", () => place.act(`Clear ${name}?`, "block.clear-field", { ...place.more, field: name }), "quiet", { "aria-label": `Clear ${name}` })));
  const fresh = { name: "A new field", hint: "Its name, a colon, and its value: a text, or JSON.", value: "", verb: "block.set-field", theirs: () => "",
    input: (text) => { const [, name = "", rest = ""] = /^\s*([^:]*?)\s*:\s*([^]*)$/.exec(text) ?? []; return { ...place.more, field: name, value: read(rest) }; } };
  return [names.length ? h("ul", { class: "list" }, names.map(row)) : none(place), place.fields.length || !place.may ? null : adding(place, "New field", fresh)];
}

function drawList(value, place) {
  // Another agent may have moved or changed it: it is found again by what it was, or not at all.
  const now = (view, item, at) => {
    const items = place.of(view).items;
    if (same(items[at], item)) return at + 1;
    const alike = items.map((each, other) => [each, other]).filter(([each]) => same(each, item));
    return alike.length === 1 ? alike[0][1] + 1 : null;
  };
  const change = (item, at) => ({
    name: `Item ${at + 1}`, hint: typeof item === "string" ? "" : hint(place.fields), value: write(item), verb: "block.set-item",
    theirs: (view) => { const there = now(view, item, at); return write(there === null ? place.of(view) : item); },
    input: (text, view) => { const there = now(view, item, at); return there === null ? null : { ...place.more, place: there, value: read(text, item) }; } });
  const fresh = { name: "A new item", hint: hint(place.fields), value: blank(place.fields), verb: "block.insert-item", theirs: () => "", input: (text) => ({ ...place.more, value: read(text) }) };
  const row = (item, at) => h("li", { class: "row" }, shown(item), tools(place,
    at ? button("↑", () => place.act(`Move item ${at + 1} up`, "block.move-item", { ...place.more, place: at + 1, to: at }), "quiet", { "aria-label": `Move item ${at + 1} up` }) : null,
    button("Edit", () => place.edit(change(item, at)), "quiet", { "aria-label": `Edit item ${at + 1}` }),
    button("Remove", () => place.act(`Remove item ${at + 1}?`, "block.delete-item", { ...place.more, place: at + 1 }), "quiet", { "aria-label": `Remove item ${at + 1}` })));
  return [value.items.length ? h("ol", { class: "list" }, value.items.map(row)) : none(place), adding(place, "New item", fresh)];
}

function drawLog(value, place) {
  // An entry is added whatever the version is: nothing can be in its way.
  const fresh = { name: "A new entry", hint: hint(place.fields), value: blank(place.fields), verb: "block.append", free: true, theirs: () => "", input: (text) => ({ ...place.more, value: read(text) }) };
  return [value.entries.length ? h("ol", { class: "list" }, value.entries.map((each) => h("li", { class: "row" }, shown(each)))) : none(place), adding(place, "New entry", fresh)];
}

function drawTree(value, place) {
  const find = (nodes, id) => { for (const each of nodes) { const there = each.id === id ? each : find(each.children, id); if (there) return there; } return null; };
  const change = (node) => ({ name: `Node ${brief(node.data, 40)}`, hint: hint(place.fields), value: write(node.data), verb: "block.set-node",
    theirs: (view) => write(find(place.of(view).nodes, node.id)?.data ?? ""),
    input: (text, view) => (find(place.of(view).nodes, node.id) ? { ...place.more, node: node.id, value: read(text, node.data) } : null) });
  const fresh = (parent) => ({ name: "A new node", hint: place.fields.length ? hint(place.fields) : "As JSON: {\"title\": \"…\"}", value: blank(place.fields) || "{\"title\": \"\"}", verb: "block.add-node", theirs: () => "",
    input: (text, view) => (parent === null || find(place.of(view).nodes, parent) ? { ...place.more, value: read(text), parent } : null) });
  const branch = (nodes) => h("ul", { class: "list tree-list" }, nodes.map((node) => h("li", null,
    h("div", { class: "row" }, shown(node.data), tools(place,
      button("Edit", () => place.edit(change(node)), "quiet", { "aria-label": `Edit ${brief(node.data, 40)}` }),
      button("Add below", () => place.edit(fresh(node.id)), "quiet", { "aria-label": `Add below ${brief(node.data, 40)}` }),
      button("Remove", () => place.act("Remove this node, and all below it?", "block.delete-node", { ...place.more, node: node.id }), "quiet", { "aria-label": `Remove ${brief(node.data, 40)}` }))),
    node.children.length ? branch(node.children) : null)));
  return [value.nodes.length ? branch(value.nodes) : none(place), adding(place, "New node", fresh(null))];
}

function drawCounter(value, place) {
  const add = (amount) => button(amount > 0 ? "Add 1" : "Take 1", () => place.act(`${amount > 0 ? "Add 1 to" : "Take 1 from"} the count`, "block.increment", { ...place.more, amount }));
  return [h("p", { class: "big" }, String(value.count)), tools(place, add(1), add(-1))];
}

const DRAW = { text: drawText, map: drawMap, list: drawList, log: drawLog, tree: drawTree, counter: drawCounter };
