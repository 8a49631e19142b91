#!/usr/bin/env bash
# Runs of one side (head), or of two in turns (base head, head base, …) so that a drift of the machine hits both, into
# load-test/SIDE/N. The exit code is the gravest of the head's runs: 1 a threshold failed, 2 wrong use, 3 incomplete.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/inputs.sh"

lines() { # the lines of a variable as arguments, empty ones left out
  mapfile -t "$2" < <(sed '/^[[:space:]]*$/d' <<< "$1")
}

lines "$SERVER_FLAGS" server_flags
lines "$FLAGS" flags
lines "$FAIL_IF" thresholds
fail_if=()
for threshold in "${thresholds[@]}"; do fail_if+=("--fail-if=$threshold"); done

# A word is a bundled locustfile, anything with a slash or an ending a path.
locustfile=$WORKLOAD
[[ -e $locustfile ]] || locustfile=$(llama-load path "$WORKLOAD")

server=
stop() {
  if [[ -n $server ]]; then
    kill -TERM "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
    server=
  fi
}
trap stop EXIT

start() { # program model log; sets url
  local port
  port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  url=http://127.0.0.1:$port
  llama-load serve llama-server --program "$1" --model "$2" --port "$port" -- "${server_flags[@]}" > "$3" 2>&1 &
  server=$!
  until python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health", timeout=2)' "$url" 2> /dev/null; do
    kill -0 "$server" 2> /dev/null || { cat "$3" >&2; exit 3; }
    sleep 0.5
  done
}

run() { # side turn
  local side=$1 folder=load-test/$1/$2 program=$PROGRAM model=$MODEL more=("${fail_if[@]}")
  url=$URL
  if [[ $side == base ]]; then
    url=$BASE_URL program=$BASE_PROGRAM model=${BASE_MODEL:-$MODEL} more=()
  else
    more+=(--junit "load-test/junit-$2.xml")
  fi
  mkdir -p "load-test/$side"
  [[ -n $url ]] || start "$program" "$model" "$folder.server.log"
  local code=0
  locust -f "$locustfile" --headless --host "$url" -u "$USERS" --num-prompts "$REQUESTS" --bust-prefix-cache \
    --label "$side" --run-dir "$folder" "${more[@]}" "${flags[@]}" || code=$?
  stop
  [[ -e $folder/summary.json ]] || exit "$((code > 1 ? code : 3))"
  [[ $side == base ]] || worst=$((code > worst ? code : worst))
}

if [[ -z $URL && -z $MODEL ]]; then
  echo "give the action a url, or a model for the server that it starts" >&2
  exit 2
fi
sides=(head)
[[ -z $BASE_URL$BASE_PROGRAM ]] || sides=(base head)
worst=0
for ((turn = 1; turn <= REPEATS; turn++)); do
  for side in "${sides[@]}"; do run "$side" "$turn"; done
  [[ ${#sides[@]} == 1 ]] || sides=("${sides[1]}" "${sides[0]}")
done
exit "$worst"
