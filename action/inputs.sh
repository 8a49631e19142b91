#!/usr/bin/env bash
# Checks every input by its pattern before anything uses it: bash runs $(…) in what it takes for a number, and a value with a dash
# in front would be a flag. Sourced by the steps.

pattern() { # name of a variable, pattern of its whole value
  local value=${!1-}
  if [[ ! $value =~ ^($2)$ ]]; then
    echo "the input ${1,,} must match $2, got ${value@Q}" >&2
    exit 2
  fi
}

pattern URL '(https?://[^[:space:][:cntrl:]]+)?'
pattern BASE_URL '(https?://[^[:space:][:cntrl:]]+)?'
pattern USERS '[1-9][0-9]{0,4}'
pattern REQUESTS '[1-9][0-9]{0,7}'
pattern REPEATS '[1-9][0-9]{0,2}'
for name in PROGRAM BASE_PROGRAM MODEL BASE_MODEL WORKLOAD; do
  pattern "$name" '([^[:cntrl:]-][^[:cntrl:]]*)?'
done
