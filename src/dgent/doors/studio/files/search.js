import { heading } from "./parts.js";
export const title = "search";
export async function show() { return [heading("search")]; }
