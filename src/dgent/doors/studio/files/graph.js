// A graph as SVG, with pan and zoom: layers from top to bottom, what waits stands below what it waits for.
import { h, s } from "./dom.js";
import { brief } from "./format.js";

const WIDE = 190, TALL = 46, GAP_X = 28, GAP_Y = 56, ACROSS = 12;

export function draw(graph, open) {
  const known = new Map(graph.nodes.map((node) => [node.id, node]));
  const edges = graph.edges.filter((each) => known.has(each.from_id) && known.has(each.to_id)).map((each) => ({ ...each, ...ends(each) }));
  const places = layout(graph.nodes, edges);
  const width = Math.max(...[...places.values()].map((each) => each.x)) + WIDE + 40, height = Math.max(...[...places.values()].map((each) => each.y)) + TALL + 40;
  const layer = s("g", null,
    edges.map((each) => edge(each, places)),
    graph.nodes.map((node) => box(node, places.get(node.id), open)));
  const picture = s("svg", { class: "canvas", tabindex: "0", role: "group", "aria-label": `${graph.nodes.length} things and ${edges.length} links` },
    s("defs", null, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z" }))), layer);
  const view = pan(picture, layer, width, height);
  return h("div", { class: "graph" },
    h("div", { class: "row tools" },
      h("button", { type: "button", onclick: () => view.zoom(1.25), "aria-label": "Zoom in" }, "+"),
      h("button", { type: "button", onclick: () => view.zoom(0.8), "aria-label": "Zoom out" }, "−"),
      h("button", { type: "button", onclick: () => view.fit() }, "Fit"),
      h("span", { class: "muted small" }, "Drag to move, scroll to zoom; arrows and + − with the keyboard.")),
    picture);
}

// An arrow goes down: from what comes first to what comes after it.
function ends(each) {
  return each.link_type === "child_of" || each.link_type === "branches_from" || each.link_type === "belongs_to" || each.link_type === "part_of"
    ? { above: each.to_id, below: each.from_id } : { above: each.from_id, below: each.to_id };
}

function layout(nodes, edges) {
  const waits = new Map(nodes.map((node) => [node.id, []])), follows = new Map(nodes.map((node) => [node.id, []]));
  for (const each of edges) { waits.get(each.below).push(each.above); follows.get(each.above).push(each.below); }
  const layer = new Map(), open = new Map(nodes.map((node) => [node.id, waits.get(node.id).length]));
  let row = nodes.map((node) => node.id).filter((id) => !open.get(id));
  const queue = [...row];
  for (const id of row) layer.set(id, 0);
  while (queue.length) {
    const id = queue.shift();
    for (const next of follows.get(id)) {
      layer.set(next, Math.max(layer.get(next) ?? 0, layer.get(id) + 1));
      open.set(next, open.get(next) - 1);
      if (open.get(next) === 0) queue.push(next);
    }
  }
  for (const node of nodes) if (!layer.has(node.id)) layer.set(node.id, 0);  // in a circle
  const single = new Set(nodes.map((node) => node.id).filter((id) => !waits.get(id).length && !follows.get(id).length));
  const rows = [];
  for (const node of nodes) if (!single.has(node.id)) (rows[layer.get(node.id)] ??= []).push(node.id);
  const places = new Map();
  let y = 20;
  for (row of rows) {
    if (!row) continue;
    const middle = (id) => { const above = waits.get(id).map((each) => places.get(each)?.x).filter((x) => x !== undefined); return above.length ? above.reduce((a, b) => a + b, 0) / above.length : Infinity; };
    row.sort((a, b) => middle(a) - middle(b));
    y = put(row, y, places);
  }
  put([...single], y, places);
  return places;
}

function put(row, top, places) {
  let y = top;
  for (let start = 0; start < row.length; start += ACROSS) {
    row.slice(start, start + ACROSS).forEach((id, place) => places.set(id, { x: 20 + place * (WIDE + GAP_X), y }));
    y += TALL + GAP_Y;
  }
  return y;
}

function edge(each, places) {
  const from = places.get(each.above), to = places.get(each.below);
  const x1 = from.x + WIDE / 2, y1 = from.y + TALL, x2 = to.x + WIDE / 2, y2 = to.y;
  const bend = Math.max(24, Math.abs(y2 - y1) / 2);
  return s("path", { class: `link ${each.link_type}`, d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 2}`, "marker-end": "url(#arrow)" }, s("title", null, each.link_type.replace("_", " ")));
}

function box(node, place, open) {
  return s("g", { class: `node ${node.kind} ${node.state}`, transform: `translate(${place.x} ${place.y})`, tabindex: "0", role: "link", "aria-label": `${node.kind} ${node.name}, ${node.state}`,
    onclick: () => open(node), onkeydown: (event) => { if (event.key === "Enter") open(node); } },
    s("title", null, `${node.kind}: ${node.name} (${node.state})`),
    s("rect", { width: WIDE, height: TALL, rx: node.kind === "trail" ? TALL / 2 : 8 }),
    s("svg", { width: WIDE - 12, height: TALL },  // cuts off what is too long
      s("text", { x: 16, y: 20, class: "name" }, brief(node.name || node.id, 24)),
      s("text", { x: 16, y: 36 }, `${node.kind} · ${node.state}`)));
}

function pan(picture, layer, width, height) {
  let x = 0, y = 0, scale = 1, held = null, moved = false;
  const set = () => layer.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  const size = () => picture.getBoundingClientRect();
  const fit = () => {
    const room = size();
    scale = room.width ? Math.min(1, room.width / width, room.height / height) : 1;
    x = Math.max(0, (room.width - width * scale) / 2);
    y = 0;
    set();
  };
  const zoom = (by, px = size().width / 2, py = size().height / 2) => {
    const next = Math.min(3, Math.max(0.05, scale * by));
    x = px - ((px - x) / scale) * next;
    y = py - ((py - y) / scale) * next;
    scale = next;
    set();
  };
  picture.addEventListener("wheel", (event) => { event.preventDefault(); const room = size(); zoom(Math.exp(-event.deltaY / 400), event.clientX - room.left, event.clientY - room.top); }, { passive: false });
  picture.addEventListener("pointerdown", (event) => { held = [event.clientX - x, event.clientY - y]; moved = false; });
  picture.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [nx, ny] = [event.clientX - held[0], event.clientY - held[1]];
    if (!moved && Math.hypot(nx - x, ny - y) < 4) return;
    if (!moved) picture.setPointerCapture(event.pointerId);
    moved = true;
    [x, y] = [nx, ny];
    set();
  });
  for (const name of ["pointerup", "pointercancel"]) picture.addEventListener(name, () => { held = null; });
  picture.addEventListener("click", (event) => { if (moved) { event.stopPropagation(); moved = false; } }, true);
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (by && !event.altKey) { event.preventDefault(); x += by[0]; y += by[1]; set(); }
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
  });
  requestAnimationFrame(fit);
  return { zoom, fit };
}
