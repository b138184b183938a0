// Builds the page into files whose names hold the hashes of their content. Nothing is put into another file: the
// server's policy permits no script, style or image inside of a page.
import { defineConfig } from "vite";

// Templates are texts for the minifier, which keeps their indentation; nobody reads it in a built file.
const withoutIndentation = {
  name: "without-indentation",
  transform: (code, id) => (/\/src\/.*\.js$/.test(id) ? { code: code.replace(/\n[ \t]+/g, "\n"), map: null } : null),
};

export default defineConfig({
  base: "/",
  plugins: [withoutIndentation],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
    reportCompressedSize: true,
  },
});
