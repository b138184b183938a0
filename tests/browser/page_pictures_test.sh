#!/usr/bin/env bash
# Compares the page with the pictures that are kept of it, with the flags of pictures.mjs. It skips visibly (77)
# without Node 20.
set -euo pipefail
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null ||
  { echo "SKIPPED: there is no node of version 20 or newer"; exit 77; }
exec node "$(dirname "$0")/pictures.mjs" "$@"
