// Chat: the conversation with an agent, its tool calls folded, and what it asks consent for.
import { call, stream } from "./api.js";
import { h, replace } from "./dom.js";
import { brief, count } from "./format.js";
import { agent as face, button, chip, complain, empty, failure, heading, json, origin, tabs, time } from "./parts.js";
import { href } from "./route.js";

export const title = "Chat";
const LIMIT = 60;
const ASK_MS = 1500;  // how often to look for what waits for consent while an agent works

export async function show({ parts, at, signal, live, leave, refresh }) {
  const agents = (await call("agent.list", {}, { signal, at })).items.map((each) => each.name);
  const name = parts[0] ?? agents[0];
  if (name === undefined) return [heading("Chat"), empty("There are no agents yet.", "An agent is there once it has a memory, or by a command:", "dgent agent create scout")];
  const page = await call("message.list", { limit: LIMIT }, { agent: name, signal, at });
  const talk = h("div", { class: "talk", "aria-live": "polite", id: "talk" }, history(page.items));
  const top = [
    heading("Chat", "Talk to an agent. What it does is recorded, and can be undone."),
    tabs("Agents", [...new Set([...agents, name])].map((each) => [each, each]), name, (each) => href(["chat", each])),
    page.cursor ? h("p", { class: "muted" }, `Only the newest ${count(LIMIT)} messages are shown.`) : null,
    page.items.length ? null : empty(`Nothing was said to ${name} yet.`),
  ];
  live(() => { if (!talk.dataset.busy) refresh(); });
  if (at !== null) return [...top, talk];
  const consents = h("div", { class: "consents" });
  const form = composer(name, talk, consents, { leave, refresh });
  requestAnimationFrame(() => talk.lastElementChild?.scrollIntoView({ block: "end" }));
  return [...top, talk, form];
}

// -- what was said ------------------------------------------------------------------------------------

function history(newestFirst) {
  const results = new Map();
  for (const each of newestFirst) for (const part of each.parts) if (part.type === "tool_result") results.set(`${each.batch}/${part.call}`, { ...part, trust: each.trust });
  return [...newestFirst].reverse().filter((each) => each.role !== "tool").map((each) => said(each, results));
}

function said(message, results) {
  const mine = message.role === "user";
  const nodes = message.parts.map((part) => {
    if (part.type === "text") return part.text ? h("p", { class: "text" }, part.text) : null;
    if (part.type === "thinking") return fold("thought", brief(part.text, 60), part.text);
    if (part.type === "tool_call") return tool(part.name, part.arguments, results.get(`${message.batch}/${part.call}`));
    return h("p", { class: "muted" }, `[${part.type}]`);
  });
  return h("article", { class: mine ? "said mine" : "said" },
    h("p", { class: "meta" }, face(mine ? message.by || "you" : message.agent), message.role === "system" ? chip("system") : null, origin(message.trust), message.origin ? h("span", { class: "muted small" }, message.origin) : null, h("span", { class: "muted small" }, time(message.at))),
    nodes);
}

function fold(kind, text, whole) {
  return h("details", { class: `fold ${kind}` }, h("summary", null, h("span", { class: "strong" }, kind), " ", text), json(whole));
}

function tool(name, given, result) {
  const words = Object.entries(given ?? {}).map(([key, value]) => `${key}=${brief(value, 40)}`).join(" ");
  const mark = h("span", { class: "mark" }, result ? (result.error ? "✗" : "✓") : "…");
  const box = h("details", { class: "fold tool" }, h("summary", null, mark, " ", h("span", { class: "strong" }, name), " ", origin(result?.trust), " ", brief(words, 100)), json(given ?? {}));
  const finish = (text, error) => { mark.textContent = error ? "✗" : "✓"; box.classList.toggle("bad", Boolean(error)); box.append(json(text)); };
  if (result) finish(result.text, result.error);
  box.finish = finish;
  return box;
}

// -- what is being said -------------------------------------------------------------------------------

const drafts = new Map();  // by agent: what is typed survives the page being drawn again after an answer

function composer(name, talk, consents, { leave, refresh }) {
  const words = h("textarea", { id: "message", rows: 2, placeholder: `Write to ${name}`, "aria-label": `Write to ${name}`, oninput: () => drafts.set(name, words.value), onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); } } });
  if (drafts.get(name)) {
    words.value = drafts.get(name);
    requestAnimationFrame(() => words.focus());
  }
  const send = h("button", { class: "primary" }, "Send");
  const stop = button("Stop", () => interrupt().catch(complain), "", { hidden: true });
  let turn = null, watching = null;
  const allowed = new Set();

  async function interrupt() {
    if (turn) await stream.post(`/v1/agents/${encodeURIComponent(name)}/interrupt`, { turn });
  }

  async function ask() {
    const waiting = (await call("consent.list", { of_agent: name })).items;
    for (const each of waiting) if (allowed.has(kindOf(each))) await answer(each, "once");
    replace(consents, waiting.filter((each) => !allowed.has(kindOf(each))).map((each) => question(each)));
  }

  async function answer(request, how, lasts) {
    await call("consent.answer", { id: request.id, answer: how, lasts });
    await ask();
  }

  function question(request) {
    const tool = request.operation ? `${request.tool}.${request.operation}` : request.tool;
    const act = (how, lasts) => () => answer(request, how, lasts).catch(complain);
    return h("section", { class: "card consent", role: "alertdialog", "aria-label": "Consent" },
      h("p", { class: "strong" }, `${request.agent} (${request.trust}) wants to call ${tool}`, request.scope ? ` in ${request.scope}` : ""),
      request.reason ? h("p", null, request.reason) : null, request.details ? json(request.details) : null,
      h("div", { class: "row" }, button("Allow once", act("once"), "primary"),
        button("While this page is open", () => { allowed.add(kindOf(request)); act("once")(); }),
        button("For an hour", act("duration", "1h")), button("Deny", act("deny"), "danger")));
  }

  async function run(text) {
    const place = { node: null, tools: new Map(), text: null };
    talk.append(h("article", { class: "said mine" }, h("p", { class: "meta" }, face("you")), h("p", { class: "text" }, text)));
    place.node = talk.appendChild(h("article", { class: "said" }, h("p", { class: "meta" }, face(name))));
    place.node.scrollIntoView({ block: "end" });
    await stream.send(`/v1/agents/${encodeURIComponent(name)}/messages`, { text, origin: "studio" }, {
      begun: (id) => { turn = id; },
      event: (each) => draw(place, each),
    });
  }

  const form = h("form", { class: "composer", onsubmit: async (event) => {
    event.preventDefault();
    const text = words.value.trim();
    if (!text || talk.dataset.busy) return;
    words.value = "";
    drafts.delete(name);
    talk.dataset.busy = "1";
    send.disabled = true;
    stop.hidden = false;
    watching = setInterval(() => ask().catch(() => { /* asked again in a moment */ }), ASK_MS);
    let failed = false;
    try { await run(text); } catch (error) { failed = true; talk.append(failure(error)); if (!words.value) words.value = text; }
    clearInterval(watching);
    turn = null;
    delete talk.dataset.busy;
    send.disabled = false;
    stop.hidden = true;
    replace(consents);
    if (!failed && talk.isConnected && !talk.querySelector(".failure")) refresh();
  } }, consents, words, h("div", { class: "row" }, send, stop, h("span", { class: "muted small" }, "Enter sends, Shift+Enter begins a line")));
  leave(() => clearInterval(watching));  // the turn itself goes on
  ask().catch(() => { /* only a partner is asked */ });
  return form;
}

const kindOf = (request) => JSON.stringify([request.tool, request.operation, request.scope, request.trust]);

function draw(place, event) {
  const near = innerHeight + scrollY > document.body.scrollHeight - 120;
  if (event.type === "text") {
    place.text ??= place.node.appendChild(h("p", { class: "text" }));
    place.text.append(event.text);
  } else if (event.type === "tool_started") {
    const box = tool(event.name, event.arguments);
    place.tools.set(event.call, box);
    place.node.append(box);
    place.text = null;
  } else if (event.type === "tool_finished") place.tools.get(event.call)?.finish(event.text ?? "", event.error);
  else if (event.type === "notice") { place.node.append(h("p", { class: "note" }, event.text)); place.text = null; }
  else if (event.type === "missed") place.node.append(h("p", { class: "muted" }, "Some events were left out here."));
  else if (event.type === "failed") place.node.append(failure(event));
  else if (event.type === "done" && event.finish === "interrupted") place.node.append(h("p", { class: "note" }, "Interrupted."));
  if (near) place.node.scrollIntoView({ block: "end" });
}
