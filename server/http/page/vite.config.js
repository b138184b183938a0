// Builds the page into files whose names hold the hashes of their content. Nothing is put into another file: the
// server's policy permits no script, style or image inside of a page.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
    reportCompressedSize: true,
  },
});
