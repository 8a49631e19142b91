#!/bin/sh
# `llama-load …` and `locust …` are run as they are; flags alone are Locust's, as in Locust's own image.
# Keys come from mounted secrets, never from arguments, which every process of the machine can read.
set -eu
for pair in swarm_key:LLAMA_LOAD_SWARM_KEY api_key:LLAMA_LOAD_API_KEY web_token:LLAMA_LOAD_WEB_TOKEN; do
    file=/run/secrets/${pair%%:*}
    if [ -r "$file" ] && [ ! -d "$file" ]; then
        value=$(cat "$file")
        # Without an API key (/dev/null in compose-swarm.yaml) a server refuses; without these two anybody would get in.
        if [ -z "$value" ] && [ "${pair%%:*}" != api_key ]; then
            echo "$file is empty" >&2
            exit 2
        fi
        export "${pair#*:}=$value"
    elif [ -e "$file" ]; then
        echo "$file is a folder, or cannot be read by user $(id -u): run the container as the owner of the file" >&2
        exit 2
    fi
done
case "${1:---help}" in
    -*) exec locust "$@" ;;
    *) exec "$@" ;;
esac
