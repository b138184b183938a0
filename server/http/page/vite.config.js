// Builds the page into files whose names hold the hashes of their content. Nothing is put into another file: the
// server's policy permits no script, style or image inside of a page.
import { transformSync } from "@babel/core";
import { defineConfig } from "vite";

// Templates become calls before anything is served, so that no browser has to read them.
const templates = {
  name: "templates",
  enforce: "pre",
  transform(code, id) {
    if (!/\/src\/.*\.js$/.test(id) || !code.includes("html`")) return null;
    const plugin = ["babel-plugin-htm", { pragma: "h", tag: "html", import: false, useNativeSpread: true }];
    const result = transformSync(code, { configFile: false, babelrc: false, plugins: [plugin] });
    return { code: `import { h } from "preact";\n${result.code}`, map: null };
  },
};

// The parts of uPlot that the page does not use would be an eighth of it: other kinds of paths, and axes of calendar
// times, which it names in three places each. Its version is fixed, and an expression that finds nothing fails the
// build.
const kUnused = [
  [/^\s*uPlot\.(assign|fmtNum|rangeLog|rangeAsinh|orient|sync|join|fmtDate|tzDate|addGap|clipGaps)\s+= .*$/gm, ""],
  [/^\t\(paths\.(linear|stepped|bars|spline)\s+= \w+\);$/gm, ""],
  [/= genTimeStuffs\([\de-]+\);/g, "= [[], [], () => null];"],
  [/let isTime = .*;$/gm, "const isTime = false;"],
  [/const (_timeAxisVals|_timeSeriesVal) +=.*$/gm, "const $1 = null;"],
  [/ \|\| fmtDate\)/g, ")"],
];
const withoutUnused = {
  name: "without-unused",
  enforce: "pre",
  transform(code, id) {
    if (!id.endsWith("uPlot.esm.js")) return null;
    for (const [pattern, instead] of kUnused) {
      if (code.search(pattern) < 0)
        this.error(`uPlot has nothing like ${pattern}; look at what has changed in it`);
      code = code.replace(pattern, instead);
    }
    return { code, map: null };
  },
};

export default defineConfig({
  base: "/",
  plugins: [templates, withoutUnused],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
    reportCompressedSize: true,
  },
});
