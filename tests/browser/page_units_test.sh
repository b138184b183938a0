#!/usr/bin/env bash
# Runs the tests of what the page computes. It skips visibly (77) without Node 20.
set -euo pipefail
cd "$(dirname "$0")/../../server/http/page"
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null ||
  { echo "SKIPPED: there is no node of version 20 or newer"; exit 77; }
exec node --test test/
