// Memory: the blocks of each agent, their versions, and the prompt that an agent gets.
import { call } from "./api.js";
import { h, replace, s } from "./dom.js";
import { brief, count, plural } from "./format.js";
import { agent as face, button, chip, complain, dialog, empty, heading, into, origin, select, sideBySide, tabs, time, toast } from "./parts.js";
import { go, href } from "./route.js";
import { structured } from "./structured.js";

const ALL = "_constellation_";
const BUDGET = 2000;
const PAGE = 30;

export const title = "Memory";

const ownerName = (owner) => (owner === ALL ? "everyone" : owner);

export async function show(page) {
  const { parts, params, signal, at, state } = page;
  const { you } = state.who;
  const listed = (await call("agent.list", {}, { signal, at })).items.map((each) => each.name);
  const names = you.here ? listed : [you.agent];
  if (!names.length && at !== null) return [heading("Memory"), empty("No agent had a memory at that time.", "")];
  if (!names.length) return [heading("Memory"), empty("No agent has a memory yet.", "An agent gets one with its first block.", "dgent --agent scout block create persona \"I answer briefly.\"")];
  const name = names.includes(parts[0]) ? parts[0] : names[0];
  const as = { agent: you.here ? name : null, signal, at };
  const blocks = (await call("block.list", { shared: true }, as)).items;
  const label = parts[1] ?? null;
  const owner = params.owner ?? name;
  const block = label === null ? null : blocks.find((each) => each.label === label && each.owner === owner) ?? null;
  const body = h("div", { class: "stack" });
  if (label !== null && block === null) replace(body, at === null ? empty(`${name} has no block “${label}”.`, "It may have been deleted: “dgent block restore” brings it back.") : empty(`${name} had no block “${label}” at that time.`, ""));
  else if (block) await into(body, () => one({ ...page, as, name, block }));
  else await into(body, () => prompt({ ...page, as, name }));
  return [
    heading("Memory", you.here ? "What each agent knows, with every version of it." : `What ${you.agent} knows. “dgent studio” shows all agents.`, at === null ? button("New block", () => create(as, name, page.refresh)) : null),
    h("div", { class: "row people", role: "navigation", "aria-label": "Agents" }, names.map((each) => h("a", { class: "button", href: href(["memory", each]), "aria-current": each === name ? "page" : null }, face(each)))),
    h("div", { class: "split" }, list(blocks, name, block), body),
  ];
}

function list(blocks, name, current) {
  const row = (each) => h("a", { href: href(["memory", name, each.label], each.owner === name ? {} : { owner: each.owner }), "aria-current": each === current ? "page" : null },
    h("span", { class: "strong" }, each.label),
    h("span", { class: "muted small" }, each.owner === name ? "" : `of ${ownerName(each.owner)} · `, each.kind, each.version ? ` · v${each.version}` : "", each.pinned || each.kind === "core" ? "" : " · not pinned"), origin(each.origin),
    h("meter", { min: 0, max: each.limit, value: each.size ?? 0, title: `${count(each.size ?? 0)} of ${count(each.limit)} characters`, "aria-label": "Size" }));
  return h("div", { class: "side", role: "navigation", "aria-label": "Blocks" },
    h("a", { href: href(["memory", name]), "aria-current": current ? null : "page" }, h("span", { class: "strong" }, "The prompt"), h("span", { class: "muted small" }, "exactly as the agent gets it")),
    blocks.map(row),
    blocks.length ? null : h("p", { class: "muted small" }, "No blocks yet."));
}

// -- the prompt ---------------------------------------------------------------------------------------

async function prompt({ as, name, params, live, refresh }) {
  const budget = Number(params.budget) || BUDGET;
  const made = await call("block.render", { budget }, as);
  live(refresh);
  const used = Math.min(100, Math.round((made.tokens / budget) * 100));
  const field = h("input", { type: "number", id: "budget", min: 0, step: 100, value: String(budget), onchange: () => go(["memory", name], { budget: field.value }) });
  const names = (title, list, kind) => list.length ? h("p", { class: "meta" }, h("span", null, title), list.map((each) => chip(each, kind))) : null;
  return [
    h("div", { class: "card" },
      h("div", { class: "row" }, h("h2", { class: "grow" }, `The prompt of ${name}`), h("label", { for: "budget" }, "Budget in tokens"), field),
      h("div", { class: "budget", role: "img", "aria-label": `${made.tokens} of ${budget} tokens` }, h("span", { class: "fill", css: { width: `${used}%` } })),
      h("p", { class: "muted" }, `${count(made.tokens)} of ${count(budget)} tokens (${used} %)`),
      names("Whole:", made.shown, "good"), names("Shortened:", made.shortened, "warning"), names("Left out:", made.cut, "bad"), names("Not in the prompt:", made.others, ""),
      made.text ? h("pre", { class: "json prompt", tabindex: "0" }, made.text) : empty("The prompt is empty.", "Core blocks and pinned ones are in it.")),
  ];
}

// -- one block ----------------------------------------------------------------------------------------

const TABS = [["text", "Text"], ["history", "History"], ["tree", "Undo tree"], ["sharing", "Sharing"]];

async function one(page) {
  const { block, name, params } = page;
  const tab = TABS.some(([id]) => id === params.tab) ? params.tab : "text";
  const keep = block.owner === name ? {} : { owner: block.owner };
  const draw = { text: text, history: history, tree: tree, sharing: sharing }[tab];
  const ref = { label: block.label, owner: block.owner };
  return h("div", { class: "card" },
    h("div", null, h("h2", { class: "big" }, block.label),
      h("p", { class: "meta" }, face(ownerName(block.owner)), origin(block.origin), chip(block.kind), chip(block.document), block.permission === "admin" ? null : chip(`may ${block.permission.replace("_", " and ")}`), block.description && h("span", null, block.description))),
    tabs("Views of this block", TABS, tab, (id) => href(["memory", name, block.label], { ...keep, tab: id === "text" ? null : id })),
    await draw({ ...page, ref, keep }));
}

const lettersOf = (size, limit) => `${count(size)} of ${count(limit)} characters`;

async function text(page) {
  const { at, as, ref, block, live, refresh } = page;
  const found = await call("block.get", ref, as);
  const isText = block.document === "text";
  const info = isText ? null : await call("block.info", ref, as);
  const area = h("div", { class: "stack" });
  const open = (change) => edit(area, found, page, view, change);
  const draw = () => structured(found, info, { edit: open, act: (...what) => act(page, found, ...what), may: at === null && !["read_only", "append"].includes(block.permission), adds: at === null && block.permission !== "read_only" });
  const whole = { name: `Text of ${block.label}`, value: found.text, verb: "block.write", theirs: (theirs) => theirs.text, input: (said) => ({ text: said }) };
  const view = () => replace(area,
    at === null ? h("p", { class: "meta" }, `version ${found.version}`, h("span", null, lettersOf(found.text.length, block.limit))) : h("p", { class: "note" }, `Version ${found.version}, as it was at commit ${at}.`),
    isText ? rendered(found.text) : draw(),
    isText && at === null ? h("div", { class: "row" }, button("Edit", () => open(whole), "primary")) : null);
  view();
  live(refresh);
  return area;
}

const rendered = (text) => (text ? h("pre", { class: "text", tabindex: "0" }, text) : empty("It says nothing yet.", ""));

// Something that needs no text: a question, then a version with the answer as its message.
async function act({ as, ref, refresh }, found, title, verb, input) {
  const why = h("input", { id: "why", class: "grow", autocomplete: "off" });
  if (await dialog(title, h("div", { class: "field" }, h("label", { for: "why" }, "Why? It is kept with the version."), why), [["Do it", "primary", true]]) === null) return;
  try {
    const done = await call(verb, { ...ref, ...input, message: why.value, expect: found.version }, as);
    toast(`Saved as version ${done.version.version}.`);
  } catch (error) {
    if (error.status !== 409) return complain(error);
    const [newest] = (await call("block.history", { ...ref, limit: 1 }, as)).items;
    toast(`Not saved: ${newest.by} saved version ${newest.version} meanwhile. Look at it first.`).classList.add("bad");
  }
  refresh();
}

// One change of a block: its `value` is edited as text, `input` makes the input of its `verb` from that and from
// the version it is made on (null where what it changes is gone), `theirs` says what another version has there.
function edit(area, found, page, view, change) {
  const { as, ref, block, refresh } = page;
  let base = found;
  const field = h("textarea", { id: "editor", "aria-label": change.name, "data-busy": "1", value: change.value, spellcheck: "true" });
  const why = h("input", { id: "why", placeholder: "Why? It is kept with the version.", "aria-label": "Message", class: "grow", autocomplete: "off" });
  const clash = h("div", { class: "stack" });
  const letters = h("span", { class: "muted small" });
  const isWhole = change.verb === "block.write";
  const measure = () => { letters.textContent = isWhole ? lettersOf(field.value.length, block.limit) : change.hint ?? ""; };
  field.addEventListener("input", measure);
  measure();
  const collide = async () => {
    const theirs = await call("block.get", ref, as);
    const [newest] = (await call("block.history", { ...ref, limit: 1 }, as)).items;
    const stays = change.input(field.value, theirs) !== null;
    replace(clash, h("section", { class: "conflict", role: "alert", "data-busy": "1" },
      h("h3", null, `Not saved: ${newest.by} saved version ${theirs.version} while you were editing.`),
      newest.message ? h("p", null, `“${newest.message}”`) : null,
      stays ? null : h("p", null, "What you edited is not there any more."),
      sideBySide(change.theirs(theirs), field.value, `version ${theirs.version}, by ${newest.by}`, "yours"),
      h("div", { class: "row" },
        stays ? button(`Save mine on top of version ${theirs.version}`, () => { base = theirs; save(); }) : null,
        stays ? button("Continue with theirs", () => { base = theirs; field.value = change.theirs(theirs); measure(); replace(clash); field.focus(); }) : button("Look at it as it is now", () => { field.removeAttribute("data-busy"); replace(clash); refresh(); }),
        h("span", { class: "muted small" }, "Both stay in the history. Nothing is lost."))));
    clash.scrollIntoView({ block: "nearest" });
  };
  const save = async () => {
    try {
      const done = await call(change.verb, { ...ref, ...change.input(field.value, base), message: why.value, expect: change.free ? null : base.version }, as);
      toast(`Saved as version ${done.version.version}.`);
      field.removeAttribute("data-busy");
      replace(clash);
      refresh();
    } catch (error) {
      if (error.status === 409) await collide().catch(complain); else complain(error);
    }
  };
  field.addEventListener("keydown", (event) => { if ((event.ctrlKey || event.metaKey) && event.key === "Enter") save(); });
  replace(area, h("p", { class: "meta" }, isWhole ? null : h("span", { class: "strong" }, change.name), `editing version ${found.version}`, letters), field, clash,
    h("div", { class: "row" }, why, button("Save", save, "primary", { title: "Ctrl+Enter" }), button("Cancel", view)));
  field.focus();
}

// -- history ------------------------------------------------------------------------------------------

async function history({ at: then, as, ref, block, params, name, keep, live, refresh }) {
  const skip = Number(params.skip) || 0;
  const found = await call("block.history", { ...ref, limit: PAGE, offset: skip }, as);
  live(refresh);
  const place = h("div", { class: "stack" });
  const at = async (number) => (number < 1 ? "" : (await call("block.at", { ...ref, version: String(number) }, as)).text);
  const open = (version, before = version - 1) => into(place, async () => {
    const [old, made] = await Promise.all([at(before), at(version)]);
    const others = [["0", "nothing"], ...found.items.filter((each) => each.version !== version).map((each) => [String(each.version), `version ${each.version}`])];
    if (before > 0 && !others.some(([id]) => id === String(before))) others.push([String(before), `version ${before}`]);
    return [
      h("div", { class: "row" }, h("h3", { class: "grow" }, `Version ${version}`),
        h("span", { class: "muted" }, "compared with"), select("Compare with", others, String(before), (other) => open(version, Number(other))),
        then !== null || (version === found.items[0]?.version && !skip) ? null : button("Roll back to it", () => rollback(version))),
      sideBySide(old, made, before ? `version ${before}` : "nothing", `version ${version}`)];
  });
  const rollback = async (version) => {
    const why = h("input", { id: "why", class: "grow", autocomplete: "off" });
    const body = h("div", null, h("p", null, `“${block.label}” becomes what it was at version ${version}, as a new version. What it says now stays in the history.`), h("div", { class: "field" }, h("label", { for: "why" }, "Why?"), why));
    if (await dialog(`Roll back to version ${version}?`, body, [["Roll back", "primary", true]]) === null) return;
    try {
      const done = await call("block.rollback", { ...ref, version: String(version), message: why.value, expect: found.items[0].version }, as);
      toast(`Rolled back: version ${done.version.version} says what version ${version} said.`);
      refresh();
    } catch (error) { complain(error); }
  };
  const rows = found.items.map((each) => h("li", null,
    h("button", { type: "button", class: "version", onclick: (event) => { for (const other of place.parentNode.querySelectorAll(".version")) other.removeAttribute("aria-pressed"); event.currentTarget.setAttribute("aria-pressed", "true"); open(each.version); } },
      h("span", { class: "mono" }, `v${each.version}`), h("span", { class: "what" }, each.message || each.op, each.lost ? chip(each.lost, "warning") : null),
      h("span", { class: "meta" }, h("span", { class: "plus" }, `+${count(each.added)}`), h("span", { class: "minus" }, `−${count(each.removed)}`), face(each.by), time(each.at)))));
  const page = (text, to) => h("a", { class: "button", href: href(["memory", name, block.label], { ...keep, tab: "history", skip: to || null }) }, text);
  if (found.items.length) open(found.items[0].version);
  return [
    h("p", { class: "muted" }, plural(found.total, "version"), ". Choose one to see what it changed."),
    h("ol", { class: "versions" }, rows),
    h("div", { class: "row" }, skip ? page("Newer", Math.max(0, skip - PAGE)) : null, skip + PAGE < found.total ? page("Older", skip + PAGE) : null),
    place,
  ];
}

// -- the tree -----------------------------------------------------------------------------------------

const COLUMN = 150, ROW = 64;

async function tree({ at, as, ref, block, live, refresh }) {
  const found = await call("block.branches", ref, as);
  live(refresh);
  const stretches = found.tree;
  const above = (each) => stretches.find((other) => other !== each && other.last === each.parent);
  const depth = new Map(), lane = new Map(), followed = new Set();
  let lanes = 0;
  for (const each of stretches) {
    const from = above(each);
    depth.set(each, from ? (depth.get(from) ?? 0) + 1 : 0);
    const straight = from && lane.has(from) && !followed.has(from);  // the first branch goes straight on
    if (straight) followed.add(from);
    lane.set(each, straight ? lane.get(from) : lanes++);
  }
  const width = (Math.max(...depth.values(), 0) + 1) * COLUMN + 40, height = Math.max(lanes, 1) * ROW + 40;
  const x = (each) => 20 + depth.get(each) * COLUMN, y = (each) => 30 + lane.get(each) * ROW;
  const name = (each) => (each.first === each.last ? `v${each.first}` : `v${each.first} – v${each.last}`);
  const line = new Set();
  for (let each = stretches.find((one) => one.here); each; each = above(each)) line.add(each);
  const visit = async (each) => {
    const body = h("p", null, `“${block.label}” says again what it said at version ${each.last}, as undo and redo do. It is a new version, and can be undone.`);
    if (await dialog(`Go to version ${each.last}?`, body, [["Go there", "primary", true]]) === null) return;
    try { await call("block.visit", { ...ref, version: String(each.last) }, as); toast(`Back at version ${each.last}.`); refresh(); } catch (error) { complain(error); }
  };
  const node = (each) => s("g", { class: `stretch ${each.here ? "here" : ""} ${line.has(each) ? "line" : ""}`, tabindex: "0", role: at === null ? "button" : "img", "aria-label": `${name(each)} by ${each.by.join(", ")}${each.here ? ", where the block is" : ""}`,
    onclick: at === null ? () => visit(each) : null, onkeydown: (event) => { if (at === null && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); visit(each); } } },
    s("rect", { x: x(each), y: y(each) - 18, width: COLUMN - 36, height: 40, rx: 8 }),
    s("text", { x: x(each) + 12, y: y(each) - 2, class: "name" }, name(each)),
    s("text", { x: x(each) + 12, y: y(each) + 13 }, brief(each.by.join(", "), 16)));
  const edge = (each) => {
    const before = above(each);
    if (!before) return null;
    const from = x(before) + COLUMN - 36, to = x(each), middle = (from + to) / 2;
    return s("path", { class: `edge ${line.has(each) ? "line" : ""}`, d: `M${from} ${y(before) + 2}C${middle} ${y(before) + 2} ${middle} ${y(each) + 2} ${to} ${y(each) + 2}` });
  };
  if (!stretches.length) return empty("There are no edits yet.", "");
  return [
    h("p", { class: "muted" }, "Undo never loses anything: a new edit after it starts a branch.", at === null ? " Choose a branch to go there." : null),
    h("div", { class: "scroll tree" }, s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "The tree of edits" }, stretches.map(edge).filter(Boolean), stretches.map(node))),
  ];
}

// -- sharing ------------------------------------------------------------------------------------------

const RIGHTS = [["read_only", "read it"], ["append", "read it and add to it"], ["read_write", "read and write it"], ["admin", "do everything with it"]];

async function sharing({ at, as, ref, block, refresh }) {
  const [info, agents] = await Promise.all([call("block.info", ref, as), call("agent.list", {}, as)]);
  const others = agents.items.map((each) => each.name).filter((each) => each !== block.owner);
  const whom = h("select", { id: "whom", "aria-label": "Agent" }, others.map((each) => h("option", { value: each }, each)));
  const right = h("select", { id: "right", "aria-label": "Permission" }, RIGHTS.map(([id, text]) => h("option", { value: id }, text)));
  const change = (verb, input, said) => async () => { try { await call(verb, { ...ref, ...input() }, as); toast(said); refresh(); } catch (error) { complain(error); } };
  return [
    block.owner === ALL ? h("p", null, "It belongs to everyone: each agent of the constellation sees it.") : null,
    info.shares.length ? h("ul", { class: "list" }, info.shares.map((each) => h("li", { class: "row" },
      h("span", { class: "grow" }, face(each.agent ?? `group ${each.group}`), " may ", (RIGHTS.find(([id]) => id === each.permission) ?? [, each.permission])[1], h("span", { class: "muted small" }, " · by ", each.by, " ", time(each.at))),
      at !== null ? null : button("Take back", change("block.unshare", () => (each.agent ? { with_agent: each.agent } : { with_group: each.group }), "Taken back."), "quiet"))))
      : h("p", { class: "muted" }, "It is shared with no other agent."),
    at === null && others.length ? h("div", { class: "row" }, h("span", null, "Let"), whom, right, button("Share", change("block.share", () => ({ with_agent: whom.value, permission: right.value }), "Shared."), "primary")) : null,
  ];
}

async function create(as, name, refresh) {
  const label = h("input", { id: "label", required: true, autocomplete: "off" });
  const about = h("input", { id: "about", autocomplete: "off" });
  const kind = h("select", { id: "kind" }, [["core", "core: always in the prompt"], ["working", "working: in the prompt while pinned"], ["archival", "archival: found by search"]].map(([id, text]) => h("option", { value: id }, text)));
  const said = h("textarea", { id: "said", rows: 5 });
  const field = (id, text, node) => h("div", { class: "field" }, h("label", { for: id }, text), node);
  const body = h("div", null, field("label", "Label", label), field("about", "What belongs into it", about), field("kind", "Kind", kind), field("said", "Text", said));
  if (await dialog(`A new block of ${name}`, body, [["Create", "primary", true]]) === null) return;
  try {
    await call("block.create", { label: label.value, description: about.value, kind: kind.value, text: said.value }, as);
    go(["memory", name, label.value]);
    refresh();
  } catch (error) { complain(error); }
}

