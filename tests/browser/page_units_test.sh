#!/usr/bin/env bash
# Runs the tests of what the page computes. It skips visibly (77) where there is no Node with a test runner.
set -euo pipefail
cd "$(dirname "$0")/../../server/http/page"
node --test --help >/dev/null 2>&1 || { echo "SKIPPED: there is no node that knows --test"; exit 77; }
exec node --test test/
