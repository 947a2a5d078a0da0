// The frame of the studio: navigation, theme, the time that is shown, and which page is open.
import { call, constellation, follow, onCommit, onState, signOut, whoAmI } from "./api.js";
import { h, icon, replace } from "./dom.js";
import { count, moment } from "./format.js";
import { complain, failure, select } from "./parts.js";
import { go, href, read } from "./route.js";

const PAGES = ["overview", "timeline", "memory", "work", "data", "search", "chat"];
const NAMES = { overview: "Overview", timeline: "Timeline", memory: "Memory", work: "Work", data: "Data", search: "Search", chat: "Chat" };
const state = { newest: 0, who: null };
const main = document.getElementById("main");
let stop = null, shown = "", leaving = null, took = 0;

// -- the theme ----------------------------------------------------------------------------------------

const keep = { get: (name) => { try { return localStorage.getItem(name); } catch { return null; } }, set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* not kept */ } } };

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const next = dark ? "light" : "dark";
  setTheme(next);
  keep.set("dgent.theme", next);
}

// -- the frame ----------------------------------------------------------------------------------------

function drawTop(who) {
  const names = who.items.map((each) => each.name);
  const picker = names.length > 1
    ? select("Constellation", names.map((each) => [each, each]), constellation || who.here, (name) => { location.href = `/?c=${encodeURIComponent(name)}`; })
    : h("span", { class: "muted" }, who.here);
  const dot = h("span", { class: "dot", title: "connecting" });
  onState((live) => {
    dot.classList.toggle("on", live);
    dot.title = live ? "live: changes appear by themselves" : "not connected: trying again";
  });
  const words = h("input", { type: "search", placeholder: "Search everything", "aria-label": "Search everything", id: "find", autocomplete: "off" });
  replace(document.getElementById("top"),
    h("a", { class: "brand", href: "#/", "aria-label": "dgent studio" }, h("img", { src: "/icon.svg", alt: "", width: 24, height: 24 }), h("span", null, "dgent")),
    picker, dot,
    h("form", { class: "find", role: "search", onsubmit: (event) => { event.preventDefault(); go(["search"], { q: words.value }); } }, icon("search"), words, h("kbd", null, "/")),
    h("span", { class: "muted who", title: `trust: ${who.you.trust}` }, who.you.agent),
    h("button", { type: "button", class: "quiet", onclick: switchTheme, "aria-label": "Switch between light and dark", title: "Light or dark (T)" }, icon("theme")),
    h("button", { type: "button", class: "quiet", onclick: () => signOut().catch(complain), "aria-label": "Sign out", title: "Sign out" }, icon("out")));
}

function drawNav(page) {
  replace(document.getElementById("nav"), PAGES.map((each, place) => h("a", { href: href([each]), "aria-current": each === page ? "page" : null, title: `${NAMES[each]} (${place + 1})` }, icon(each), h("span", null, NAMES[each]))));
}

async function drawPast(at, page) {
  const bar = document.getElementById("past");
  bar.hidden = at === null;
  document.body.classList.toggle("in-past", at !== null);
  if (at === null) return;
  const when = h("span", null, `commit ${count(at)}`);
  const back = h("a", { class: "button", href: href([page, ...read().parts], { ...read().params, at: null }) }, "Back to now");
  const step = (by) => h("button", { type: "button", class: "quiet", "aria-label": by < 0 ? "One commit earlier" : "One commit later", onclick: () => go([page, ...read().parts], { ...read().params, at: Math.min(Math.max(1, at + by), state.newest) }) }, by < 0 ? "‹" : "›");
  replace(bar, h("span", { class: "strong" }, "You are looking at the past: "), step(-1), when, step(1), back, h("p", null, "Every page shows it, and nothing can be changed here."));
  try { when.textContent = `commit ${count(at)}, ${moment((await call("data.get-commit", { seq: at, records: 0 })).at)}`; } catch { /* pruned: the number has to do */ }
}

// -- pages --------------------------------------------------------------------------------------------

async function open({ again = false } = {}) {
  const route = read();
  const name = PAGES.includes(route.page) ? route.page : "overview";
  stop?.abort();
  for (const each of leaving ?? []) each();
  stop = new AbortController();
  leaving = [];
  const { signal } = stop;
  const here = [name, ...route.parts].join("/");
  drawNav(name);
  main.setAttribute("aria-busy", "true");
  const began = performance.now();
  try {
    const module = await import(`./${name}.js`);
    if (signal.aborted) return;
    drawPast(route.at, name);
    const moves = leaving;
    const nodes = await module.show({
      parts: route.parts, params: route.params, at: route.at, signal, state,
      live: (listen) => { if (route.at === null) moves.push(onCommit(soon(listen, signal))); },  // the past stays as it was
      leave: (each) => moves.push(each),
      refresh: () => { if (!signal.aborted) open({ again: true }); },
    });
    if (signal.aborted) return;
    took = performance.now() - began;
    const focus = again ? focused() : null;
    replace(main, nodes);
    document.title = `${main.querySelector("h1")?.textContent ?? module.title} · dgent studio`;
    if (!again && shown !== here) { scrollTo(0, 0); if (shown) main.querySelector("h1")?.focus(); }
    if (focus) main.querySelector(focus)?.focus();
    shown = here;
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    replace(main, h("h1", { tabindex: "-1" }, NAMES[name]), failure(error), h("p", null, h("button", { type: "button", onclick: () => open() }, "Try again")));
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

// What has the focus, so that a page that is drawn again gives it back.
function focused() {
  const id = document.activeElement?.id;
  return id && main.contains(document.activeElement) ? `#${CSS.escape(id)}` : null;
}

// A page that draws itself again does so once for many commits.
function soon(listen, signal) {
  if (listen.length > 0) return listen;
  let waiting = null;
  return () => {
    if (waiting) return;
    // A page that takes long to draw is drawn less often.
    waiting = setTimeout(() => {
      waiting = null;
      if (!signal.aborted && !document.querySelector("dialog[open]") && !main.querySelector("[data-busy]")) listen();
    }, Math.max(250, 4 * took));
  };
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) {
    if (event.key === "Escape" && event.target.id === "find") event.target.blur();
    return;
  }
  if (event.key === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
  else if (event.key === "t") switchTheme();
  else if (/^[1-7]$/.test(event.key)) go([PAGES[Number(event.key) - 1]]);
});

async function begin() {
  setTheme(keep.get("dgent.theme"));
  try {
    const who = await whoAmI();
    state.who = who;
    state.newest = who.seq;
    drawTop(who);
    onCommit((each) => { state.newest = Math.max(state.newest, each.seq ?? 0); });
    addEventListener("hashchange", () => open());
    await open();
    follow(who.seq);
  } catch (error) {
    replace(main, h("h1", null, "The studio cannot open"), failure(error));
  }
}

begin();
