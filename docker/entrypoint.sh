#!/bin/sh
# `llama-load …` and `locust …` are run as they are; flags alone are Locust's, as in Locust's own image.
# Keys come from mounted secrets, never from arguments, which every process of the machine can read.
set -eu
for pair in swarm_key:LLAMA_LOAD_SWARM_KEY api_key:LLAMA_LOAD_API_KEY web_token:LLAMA_LOAD_WEB_TOKEN; do
    file=/run/secrets/${pair%%:*}
    if [ -r "$file" ]; then
        export "${pair#*:}=$(cat "$file")"
    elif [ -e "$file" ]; then
        echo "$file cannot be read by user $(id -u): run the container as the owner of the file" >&2
        exit 2
    fi
done
case "${1:---help}" in
    -*) exec locust "$@" ;;
    *) exec "$@" ;;
esac
