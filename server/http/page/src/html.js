// Binds templates to Preact. Texts in them are always text: nothing here makes markup of a value.
import htm from "htm";
import { h } from "preact";

// The build turns templates into calls; only tests of single modules read them at run time.
export const html = /* @__PURE__ */ htm.bind(h);

// Joins the names of classes that are given.
export const classes = (...names) => names.filter(Boolean).join(" ");
