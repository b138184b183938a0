// Binds templates to Preact. Texts in them are always text: nothing here makes markup of a value.
import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);

// Joins the names of classes that are given.
export const classes = (...names) => names.filter(Boolean).join(" ");
