// Timeline: the log as it happens; each commit opens its difference, and can be undone.
import { call, schemas } from "./api.js";
import { h, replace } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { agent, button, chip, complain, dialog, empty, failure, fieldDiff, heading, into, origin, recordLink, select, sentences, sideBySide, time, toast, undoButton } from "./parts.js";
import { go, href } from "./route.js";

const PAGE = 25;
const SPANS = [["", "All time"], ["1h", "Last hour"], ["24h", "Last day"], ["7d", "Last week"], ["30d", "Last month"]];

export const title = "Timeline";

export async function show({ parts, params, at, signal, live, state, refresh }) {
  if (parts[0]) return commitPage(Number(parts[0]), { signal, refresh });
  const filters = { author: params.author, schema: params.schema, since: params.since, before: at === null ? null : at + 1 };
  const [log, known, agents] = await Promise.all([
    call("data.log", { ...filters, limit: PAGE, records: 1 }, { signal }),
    schemas(),
    call("agent.list", {}, { signal, at }),
  ]);
  const list = h("ol", { class: "log" }, log.items.map((each) => entry(each, refresh)));
  const none = h("div", null);
  const filtered = Boolean(params.author || params.schema || params.since);
  const note = () => replace(none, list.children.length ? null : filtered
    ? empty("No commit matches these filters.", "Choose other filters, or all time.")
    : empty("Nothing has happened yet.", "Each change of an agent appears here at once.", "dgent remember \"Use SQLite for the store\""));
  note();
  live((each) => {
    if (list.querySelector(`[data-seq="${each.seq}"]`)) return;
    if (params.author && each.author !== params.author) return;
    if (params.schema && !each.items.some((item) => item.schema === params.schema)) return;
    const node = entry(each, refresh);
    node.classList.add("fresh");
    list.prepend(node);
    note();
  });
  const names = [...new Set([...agents.items.map((each) => each.name), ...log.items.map((each) => each.author), ...(params.author ? [params.author] : [])])].sort();
  const set = (name) => (value) => go(["timeline"], { ...params, [name]: value });
  return [
    heading("Timeline", at === null ? "Every change, the newest first. New ones appear by themselves." : `Every change up to commit ${at}.`),
    h("div", { class: "filters" },
      select("Agent", [["", "All agents"], ...names.map((each) => [each, each])], params.author ?? "", set("author")),
      select("Schema", [["", "All schemas"], ...schemaNames(known).map((each) => [each, each])], params.schema ?? "", set("schema")),
      select("Time", SPANS, params.since ?? "", set("since"))),
    travel(state.newest, log.first_seq, at),
    list, none, more(list, log, filters, refresh),
  ];
}

// Those of people first, then those of dgent that have records.
function schemaNames(items) {
  const own = (each) => Boolean(each.owner) || each.name.startsWith("dgent.");
  return items.filter((each) => each.records || !own(each)).sort((a, b) => own(a) - own(b) || (a.name < b.name ? -1 : 1)).map((each) => each.name);
}

// -- the slider ---------------------------------------------------------------------------------------

export function travel(newest, first, at) {
  const said = h("output", { class: "muted" });
  let waiting;
  const tell = (seq) => {
    if (seq >= newest) { said.textContent = "now"; return; }
    said.textContent = `commit ${count(seq)}`;
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      try { said.textContent = `commit ${count(seq)} · ${moment((await call("data.get-commit", { seq, records: 0 })).at)}`; } catch { /* pruned: the number has to do */ }
    }, 150);
  };
  const slider = h("input", { type: "range", id: "as-of", min: Math.max(1, first), max: Math.max(1, newest), value: at ?? newest, step: 1,
    oninput: (event) => tell(Number(event.target.value)),
    onchange: (event) => { const seq = Number(event.target.value); go(["timeline"], { at: seq >= newest ? null : seq }); } });
  tell(at ?? newest);
  return h("div", { class: "travel" }, h("label", { for: "as-of" }, "As of"), slider, said);
}

// -- entries ------------------------------------------------------------------------------------------

function entry(each, refresh) {
  const body = h("div", { class: "body" });
  const [first, ...rest] = sentences(each);
  const details = h("details", { ontoggle: () => { if (details.open && !body.hasChildNodes()) into(body, () => difference(each.seq)); } },
    h("summary", null,
      h("span", { class: "what" }, first, rest.length ? h("span", { class: "muted" }, ` and ${rest.length} more`) : null),
      h("span", { class: "meta" }, agent(each.author), origin(each.origin), each.kind === "data" ? null : chip(each.kind), each.note && !each.summary.length ? h("span", { class: "muted clip" }, each.note) : null, time(each.at),
        h("a", { class: "mono muted", href: href(["timeline", String(each.seq)]), "aria-label": `Commit ${each.seq}` }, `#${each.seq ?? "–"}`))),
    body,
    each.seq === null ? null : h("div", { class: "row" }, undoButton(each.seq, (seq) => undo(seq, refresh)),
      h("a", { class: "button quiet", href: href(["timeline"], { at: each.seq }) }, "Look at everything as of here")));
  return h("li", { "data-seq": each.seq }, details);
}

function more(list, log, filters, refresh) {
  let oldest = log.items.at(-1)?.seq;
  const make = (found) => found.length === PAGE && oldest > log.first_seq;
  if (!make(log.items)) return null;
  const node = button("Older", async () => {
    try {
      const next = await call("data.log", { ...filters, before: oldest, limit: PAGE, records: 1 });
      list.append(...next.items.map((each) => entry(each, refresh)));
      oldest = next.items.at(-1)?.seq ?? oldest;
      if (!make(next.items)) node.remove();
    } catch (error) { complain(error); }
  }, "wide");
  return node;
}

// -- one commit ---------------------------------------------------------------------------------------

async function commitPage(seq, { signal, refresh }) {
  const commit = await call("data.get-commit", { seq, records: MOST }, { signal });
  return [
    heading(`Commit ${count(seq)}`, null, undoButton(seq, (each) => undo(each, refresh)), h("a", { class: "button", href: href(["timeline"], { at: seq }) }, "As of here")),
    h("p", { class: "meta" }, agent(commit.author), origin(commit.origin), chip(commit.kind), time(commit.at), commit.note && h("span", null, `“${commit.note}”`)),
    commit.of_seq ? h("p", null, "It undid ", h("a", { href: href(["timeline", String(commit.of_seq)]) }, `commit ${commit.of_seq}`), ".") : null,
    h("ul", { class: "list" }, sentences(commit).map((each) => h("li", null, each))),
    await difference(seq, commit),
    h("p", null, h("a", { href: href(["timeline"]) }, "All commits")),
  ];
}

const MOST = 30;

export async function difference(seq, known) {
  const commit = known ?? await call("data.get-commit", { seq, records: MOST });
  const nodes = await Promise.all(commit.items.map(async (item) => {
    try { return await itemDifference(item); } catch (error) { return failure(error); }
  }));
  if (commit.more) nodes.push(h("p", { class: "muted" }, `and ${plural(commit.more, "record")} more`));
  return h("div", { class: "items" }, nodes.length ? nodes : h("p", { class: "muted" }, "It changed no record that is still kept."));
}

async function itemDifference(item) {
  const version = /^(.*)\/u\/(\d+)$/.exec(item.id ?? "");
  if (item.schema === "block.version" && version && item.op === "put") return blockDifference(version[1], Number(version[2]));
  const schema = item.schema ?? "no schema";
  const head = h("p", { class: "meta" }, chip(item.op, item.op), h("span", { class: "mono muted" }, schema),
    item.id === null ? h("span", { class: "muted" }, "forgotten") : recordLink({ schema: item.schema, id: item.id }), item.rev ? h("span", { class: "muted" }, `rev ${item.rev}`) : null);
  if (item.op !== "put" || item.id === null) {
    const gone = item.before?.data ?? {};
    return h("section", null, head, fieldDiff(Object.entries(gone).map(([path, old]) => ({ path, old }))));
  }
  if (item.rev === 1) return h("section", null, head, fieldDiff(Object.entries(item.record?.data ?? {}).map(([path, made]) => ({ path, new: made }))));
  try {
    const diff = await call("data.diff", { id: item.id, old: item.rev - 1, new: item.rev });
    return h("section", null, head, fieldDiff(diff.differences));
  } catch (error) {
    return h("section", null, head, h("p", { class: "muted" }, `The version before is not kept: ${error.message}`), fieldDiff(Object.entries(item.record?.data ?? {}).map(([path, made]) => ({ path, new: made }))));
  }
}

async function blockDifference(id, version) {
  const { data } = await call("data.get", { id });
  const all = data.owner === "_constellation_";  // it belongs to everyone
  const as = { agent: all ? null : data.owner };
  const text = async (number) => (number < 1 ? "" : (await call("block.at", { label: id, version: String(number) }, as)).text);
  const [before, after] = await Promise.all([text(version - 1), text(version)]);
  return h("section", null,
    h("p", { class: "meta" }, chip("block"), h("a", { href: all ? href(["memory", "-", data.label], { owner: data.owner }) : href(["memory", data.owner, data.label]) }, `${all ? "everyone" : data.owner} / ${data.label}`), h("span", { class: "muted" }, `version ${version}`)),
    sideBySide(before, after, version > 1 ? `version ${version - 1}` : "nothing", `version ${version}`));
}

// -- undo ---------------------------------------------------------------------------------------------

export async function undo(seq, refresh) {
  try {
    const plan = await call("data.undo", { seq, dry_run: true });
    const body = h("div", null,
      h("p", null, `This puts back what commit ${count(seq)} changed, as a new commit. It can be undone too.`),
      h("ul", { class: "list" }, plan.summary.map((each) => h("li", null, each))),
      h("p", { class: "muted" }, plural(plan.changed.length, "record changes", "records change")));
    if (await dialog(`Undo commit ${count(seq)}?`, body, [["Undo it", "primary", true]]) === null) return;
    const done = await call("data.undo", { seq });
    toast(`Commit ${count(seq)} was undone by commit ${count(done.seq)}.`);
    refresh();
  } catch (error) {
    // The hint of the verb speaks of options that the studio does not have.
    error.hint = { undo_conflict: "undo the later commits first", denied: "its history in Memory rolls it back" }[error.code] ?? error.hint;
    complain(error);
  }
}

