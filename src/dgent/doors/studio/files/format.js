// Numbers, times and sizes as people read them.
const number = new Intl.NumberFormat("en");
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const minute = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
const whole = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium", hour12: false });

export const count = (value) => number.format(value);
export const plural = (value, noun, more = noun + "s") => `${count(value)} ${value === 1 ? noun : more}`;
export const date = (text) => day.format(new Date(text));
export const moment = (text) => whole.format(new Date(text));

export function ago(text, now = Date.now()) {
  const seconds = Math.round((now - new Date(text)) / 1000);
  if (seconds < 0) return `in ${duration(-seconds)}`;
  if (seconds < 10) return "just now";
  if (seconds < 7 * 86400) return `${duration(seconds)} ago`;
  return seconds < 300 * 86400 ? minute.format(new Date(text)) : date(text);
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function bytes(value) {
  const names = ["B", "kB", "MB", "GB", "TB"];
  let size = value, place = 0;
  while (size >= 1000 && place < names.length - 1) { size /= 1000; place += 1; }
  return `${place && size < 10 ? size.toFixed(1) : Math.round(size)} ${names[place]}`;
}

export function brief(value, most = 80) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

export const shortId = (id) => (id && id.length > 20 ? id.slice(0, 8) + "…" + id.slice(-4) : id);
