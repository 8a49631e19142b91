#!/usr/bin/env bash
# load-test/report.md: the comparison with the base where there is one, then the last report of this branch; and the gates.
set -euo pipefail
[[ -d load-test/head ]] || exit 0
report=load-test/report.md
code=0
: > "$report"
if [[ -d load-test/base ]]; then
  mapfile -t wanted < <(sed '/^[[:space:]]*$/d' <<< "$GATE")
  gates=()
  for gate in "${wanted[@]}"; do gates+=("--gate=$gate"); done
  llama-load compare base=load-test/base head=load-test/head --format md "${gates[@]}" >> "$report" || code=$?
  printf '\n' >> "$report"
fi
last=$(find load-test/head -type f -name report.md | sort -V | tail -n 1)
[[ -z $last ]] || cat "$last" >> "$report"
[[ -z ${GITHUB_STEP_SUMMARY:-} ]] || cat "$report" >> "$GITHUB_STEP_SUMMARY"
exit "$code"
