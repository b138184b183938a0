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

render(html`<${App} />`, document.getElementById("page"));
