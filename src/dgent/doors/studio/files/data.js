// Data: schemas, their records as a table, and one record with all that is known of it.
import { call, schemas } from "./api.js";
import { h } from "./dom.js";
import { brief, count, plural } from "./format.js";
import { agent as face, button, card, chip, complain, dialog, empty, fieldDiff, heading, into, json, origin, recordLink, time, toast } from "./parts.js";
import { go, href } from "./route.js";

const PAGE = 50;
const COLUMNS = 6;
const MOST_SORTED = 20_000;  // records that are sorted without an index

export const title = "Data";

export async function show(page) {
  const [schema, id] = page.parts;
  if (id) return recordPage(page, id);
  return schema ? tablePage(page, schema) : schemasPage(page);
}

// -- schemas ------------------------------------------------------------------------------------------

async function schemasPage({ signal, live, refresh, at, params }) {
  const { items, partial } = await call("data.schemas", {}, { signal, at });
  live(refresh);
  const all = params.all === "1";
  const shown = items.filter((each) => (at === null || each.records) && (all || !each.owner && !each.name.startsWith("dgent."))).sort((a, b) => b.records - a.records);
  const row = (each) => h("tr", null,
    h("th", { scope: "row" }, h("a", { href: href(["data", each.name || "-"]) }, each.name || "no schema"), each.owner ? h("span", { class: "muted small" }, ` of ${each.owner}`) : null),
    h("td", { class: "number" }, count(each.records)),
    h("td", null, each.versions.map((version) => chip(`v${version}`))),
    h("td", null, each.indexes.map((path) => chip(path)), each.text.map((path) => chip(`${path} (words)`))),
    h("td", null, each.building.length || each.lagging ? chip("building", "warning") : ""));
  return [
    heading("Data", plural(shown.reduce((sum, each) => sum + each.records, 0), "record"), h("a", { class: "button", href: href(["data"], { all: all ? null : "1" }) }, all ? "Only my data" : "Also dgent's own")),
    partial ? h("p", { class: "note" }, "The store is unavailable: only what is here is listed.") : null,
    shown.length ? h("div", { class: "scroll" }, h("table", { class: "table" }, h("thead", null, h("tr", null, ["Schema", "Records", "Versions", "Indexes", ""].map((each) => h("th", { scope: "col" }, each)))), h("tbody", null, shown.map(row))))
      : empty("There are no records yet.", "Store one, and it appears here:", "dgent remember '{\"action\": \"ship it\"}' --schema witness.mark"),
  ];
}

// -- the table ----------------------------------------------------------------------------------------

async function tablePage({ params, at, signal, live, refresh }, schema) {
  const where = (params.where ?? "").split("\n").filter(Boolean);
  const input = { schema: schema === "-" ? null : schema, where, tag: params.tag ? [params.tag] : [], author: params.author, order_by: params.sort ?? "created_at", ascending: params.up === "1", limit: PAGE, as_of: at === null ? null : String(at) };
  const place = h("div", { class: "stack" });
  const trail = [null];
  let current = 0;
  const set = (more) => go(["data", schema], { ...params, ...more });
  const load = () => into(place, async () => {
    const [found, known] = await Promise.all([call("data.query", { ...input, cursor: trail[current] }, { signal }), schemas(schema === "-" ? null : schema)]);
    const about = known.find((each) => each.name === schema);
    const sorts = (path) => !about || about.records <= MOST_SORTED || about.indexes.includes(path);
    const items = schema === "-" ? found.items.filter((each) => !each.schema) : found.items;
    trail[current + 1] = found.cursor;
    return [
      found.partial ? h("p", { class: "note" }, "The store is unavailable: there may be more.") : null,
      found.explain && !items.length ? h("p", { class: "muted" }, found.explain) : null,
      items.length ? table(items, params, set, sorts) : empty("No record matches.", where.length ? "Change the filters." : at === null ? "" : "There were none at that time."),
      h("div", { class: "row", id: "pager" },
        button("Back", () => { current -= 1; load(); }, "", { disabled: current === 0, id: "back" }),
        h("span", { class: "muted" }, items.length ? `${count(current * PAGE + 1)} – ${count(current * PAGE + items.length)}` : ""),
        button("Next", () => { current += 1; load(); }, "", { disabled: !found.cursor, id: "next" }))];
  });
  await load();
  live(() => { if (current === 0) load(); });
  return [
    heading(schema === "-" ? "No schema" : schema, at === null ? "Records, as they are now." : `Records as of commit ${at}.`, h("a", { class: "button", href: href(["data"]) }, "All schemas")),
    filters(params, where, set),
    place,
  ];
}

function filters(params, where, set) {
  const field = h("input", { id: "where", class: "grow", placeholder: "weight>=3, author=ann, name^=sh", "aria-label": "Filter", autocomplete: "off" });
  const add = (event) => {
    event.preventDefault();
    if (field.value.trim()) set({ where: [...where, field.value.trim()].join("\n") });
  };
  const drop = (label, more) => h("button", { type: "button", class: "filter", onclick: () => set(more), "aria-label": `Remove the filter ${label}` }, label, " ×");
  return h("div", { class: "filters" },
    h("form", { class: "row grow", onsubmit: add }, field, h("button", null, "Filter")),
    where.map((each, place) => drop(each, { where: where.filter((_, other) => other !== place).join("\n") || null })),
    params.tag ? drop(`tag ${params.tag}`, { tag: null }) : null,
    params.author ? drop(`by ${params.author}`, { author: null }) : null);
}

function table(items, params, set, sorts) {
  const names = new Map();
  for (const each of items) for (const key of Object.keys(each.data)) names.set(key, (names.get(key) ?? 0) + 1);
  const keys = [...names].sort((a, b) => b[1] - a[1]).slice(0, COLUMNS).map(([key]) => key);
  const sort = params.sort ?? "created_at", up = params.up === "1";
  const head = (path, text) => h("th", { scope: "col", "aria-sort": sort === path ? (up ? "ascending" : "descending") : null },
    h("button", { type: "button", class: "sort", onclick: () => set({ sort: path === "created_at" ? null : path, up: sort === path && !up ? "1" : null }) }, text, sort === path ? (up ? " ↑" : " ↓") : ""));
  const cell = (value) => h("td", { class: typeof value === "number" ? "number short" : brief(value ?? "").length < 18 ? "short" : "" }, value === undefined ? h("span", { class: "muted" }, "—") : brief(value, 70));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records" }, h("table", { class: "table" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Record"), keys.map((key) => (sorts(key) ? head(key, key) : h("th", { scope: "col", title: "It has no index: sorting would read every record." }, key))), h("th", { scope: "col" }, "Tags"), h("th", { scope: "col" }, "Author"), head("created_at", "Made"))),
    h("tbody", null, items.map((each) => h("tr", null,
      h("th", { scope: "row" }, recordLink(each, brief(each.id, 26)), each.problem ? chip("unreadable", "bad") : null, origin(each.origin)),
      keys.map((key) => cell(each.data[key])),
      h("td", null, each.tags.slice(0, 4).map((tag) => h("button", { type: "button", class: "chip", onclick: () => set({ tag }) }, tag))),
      h("td", null, each.author ? h("button", { type: "button", class: "plain", onclick: () => set({ author: each.author }) }, face(each.author)) : ""),
      h("td", null, time(each.created_at)))))));
}

// -- one record ---------------------------------------------------------------------------------------

async function recordPage({ at, signal, live, refresh }, id) {
  const as_of = at === null ? null : String(at);
  let record = null, gone = null;
  try { record = await call("data.get", { id, as_of }, { signal }); } catch (error) { if (error.code !== "not_found") throw error; gone = error; }
  const [past, chain, links, caused] = await Promise.all([
    call("data.history", { id, limit: 50 }, { signal, at }).catch(() => ({ items: [] })),
    record ? call("data.chain", { id }, { signal, at }).catch(() => ({ items: [] })) : { items: [] },
    record ? call("data.associated", { id }, { signal, at }).catch(() => ({ items: [] })) : { items: [] },
    record ? call("data.query", { parent: record.id, limit: 20, all: true, as_of }, { signal }).catch(() => ({ items: [] })) : { items: [] },
  ]);
  live(refresh);
  if (gone && at === null && !past.items.length) throw gone;
  const schema = record?.schema ?? past.items.find((each) => each.record)?.record.schema;
  return [
    heading(id, null, h("a", { class: "button", href: href(["data", schema || "-"]) }, schema || "No schema"), record && at === null ? button("Delete", () => remove(record, refresh), "quiet") : null),
    gone ? h("p", { class: "note" }, at === null ? "It was deleted. Its history is below; undo in the Timeline brings it back." : "It did not exist at that time.") : null,
    record ? h("p", { class: "meta" }, record.author && face(record.author), origin(record.origin), chip(`rev ${record.rev}`), record.version ? chip(`schema v${record.version}`) : null, record.tags.map((tag) => chip(tag, "accent")), record.committed_by && record.committed_by !== record.author ? `stored by ${record.committed_by}` : null, record.source && `from ${record.source}`, time(record.updated_at ?? record.created_at)) : null,
    record?.problem ? h("p", { class: "note" }, record.problem) : null,
    h("div", { class: "columns" },
      record ? card("Record", facts(record.data), record.content ? h("p", { class: "muted" }, `${count(Math.floor(record.content.length * 0.75))} bytes of content`) : null) : null,
      card("History", history(id, past.items)),
      chain.items.length > 1 ? card("What it came from", h("ol", { class: "chain" }, chain.items.map((each) => h("li", { "aria-current": each.id === id ? "true" : null }, recordLink(each), " ", h("span", { class: "muted small" }, brief(each.data, 90)))))) : null,
      caused.items.length ? card("What came from it", h("ul", { class: "list" }, caused.items.map((each) => h("li", null, recordLink(each), " ", h("span", { class: "muted small" }, brief(each.data, 90)))))) : null,
      links.items.length ? card("References", h("ul", { class: "list" }, links.items.map((each) => h("li", null, each.a === id ? "→ " : "← ", chip(each.kind), " ", h("a", { class: "mono", href: href(["data", "-", each.a === id ? each.b : each.a]) }, each.a === id ? each.b : each.a))))) : null),
  ];
}

function facts(data) {
  const rows = Object.entries(data);
  if (!rows.length) return h("p", { class: "muted" }, "It has no fields.");
  return h("dl", { class: "facts" }, rows.map(([key, value]) => [h("dt", null, key), h("dd", null, typeof value === "object" && value !== null ? json(value) : String(value))]));
}

function history(id, items) {
  if (!items.length) return h("p", { class: "muted" }, "No version is kept.");
  const place = h("div");
  const open = (each) => into(place, async () => {
    const before = items.find((other) => other.rev < each.rev);
    if (!before) return fieldDiff(Object.entries(each.record?.data ?? {}).map(([path, made]) => ({ path, new: made })));
    return fieldDiff((await call("data.diff", { id, old: before.rev, new: each.rev })).differences);
  });
  return [h("ul", { class: "versions" }, items.map((each) => h("li", null, h("button", { type: "button", class: "version", onclick: () => open(each) },
    h("span", { class: "mono" }, `rev ${each.rev}`), h("span", { class: "what" }, each.op === "delete" ? chip("deleted", "delete") : each.note ?? ""), h("span", { class: "meta" }, each.author && face(each.author), origin(each.record?.origin), time(each.at)))))), place];
}

async function remove(record, refresh) {
  if (await dialog(`Delete “${brief(record.id, 60)}”?`, h("p", null, "Its history stays, and undo brings it back."), [["Delete it", "danger", true]]) === null) return;
  try { await call("data.delete", { id: record.id, expect: record.rev }); toast("Deleted."); refresh(); } catch (error) { complain(error); }
}

