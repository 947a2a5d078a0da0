import { heading } from "./parts.js";
export const title = "work";
export async function show() { return [heading("work")]; }
