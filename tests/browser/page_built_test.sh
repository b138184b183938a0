#!/usr/bin/env bash
# page_built_test.sh WORK: builds the page from its sources in a folder, and compares it with the files that are kept. It skips
# visibly (77) where npm or its packages cannot be had: a build of Trainyard takes the kept files and needs neither.
set -euo pipefail
page=$(cd "$(dirname "$0")/../../server/http/page" && pwd)
work=$1

skip() {
  echo "SKIPPED: $1"
  exit 77
}

command -v npm >/dev/null || skip "there is no npm"
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' || skip "node is older than version 20"
mkdir -p "$work"
rm -rf "$work/src" "$work/dist"
cp -r "$page"/{package.json,package-lock.json,.npmrc,vite.config.js,index.html,src} "$work/"
cd "$work"
timeout 120 npm ci --ignore-scripts --no-audit --no-fund >npm.log 2>&1 || skip "npm cannot get the packages: $(tail -1 npm.log)"
npx vite build >vite.log 2>&1 || { cat vite.log; exit 1; }
diff -r dist "$page/dist" || {
  echo "server/http/page/dist is not what its sources give; run 'npm ci && npm run build' in server/http/page"
  exit 1
}
