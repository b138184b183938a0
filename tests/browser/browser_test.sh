#!/usr/bin/env bash
# Runs the checks of the page in a browser, with the flags of run.mjs. It skips visibly (77) without Node 20.
set -euo pipefail
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null ||
  { echo "SKIPPED: there is no node of version 20 or newer"; exit 77; }
exec node "$(dirname "$0")/run.mjs" "$@"
