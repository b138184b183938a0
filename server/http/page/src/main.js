// Starts the page.
import { render } from "preact";
import "@preact/signals";
import "uplot/dist/uPlot.min.css";
import "./css/base.css";
import "./css/parts.css";
import "./css/job.css";
import "./css/pool.css";
import "./css/search.css";
import { App } from "./app.js";
import { html } from "./html.js";
import { takeCode } from "./session.js";

const codeError = await takeCode();
render(html`<${App} codeError=${codeError} />`, document.getElementById("page"));
