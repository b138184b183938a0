#!/usr/bin/env bash
# Runs the checks of the page in a browser, with the flags of run.mjs. It skips visibly (77) where there is no Node.
set -euo pipefail
command -v node >/dev/null || { echo "SKIPPED: there is no node"; exit 77; }
exec node "$(dirname "$0")/run.mjs" "$@"
