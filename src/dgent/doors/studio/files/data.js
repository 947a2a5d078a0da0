import { heading } from "./parts.js";
export const title = "data";
export async function show() { return [heading("data")]; }
