// Build the page from nodes. Content is only ever set as text: nothing here parses HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, kids) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "css") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...kids.flat(Infinity).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return node;
}

export function h(tag, props, ...kids) {
  return fill(document.createElement(tag), props, kids);
}

export function s(tag, props, ...kids) {
  return fill(document.createElementNS(SVG, tag), props, kids);
}

export function replace(node, ...kids) {
  node.replaceChildren(...kids.flat(Infinity).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return node;
}

const PATHS = {
  overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 10h7v10h-7zM4 13h7v7H4z",
  timeline: "M12 7v5l3 2M12 3a9 9 0 1 0 9 9M21 4v5h-5",
  memory: "M6 3h9l4 4v14H6zM14 3v5h5M9 12h7M9 16h7",
  work: "M4 5h4v14H4zM10 5h4v9h-4zM16 5h4v6h-4z",
  data: "M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  chat: "M4 5h16v11H11l-5 4v-4H4zM8 9h8M8 12h5",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z",
  out: "M10 4H4v16h6M14 8l4 4-4 4M18 12H9",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 0 12",
  lock: "M6 11h12v9H6zM8 11V8a4 4 0 0 1 8 0v3",
};

export function icon(name) {
  return s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}
