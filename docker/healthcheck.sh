#!/bin/sh
# Healthy: the web UI answers, or what runs here has none.
[ -z "${LOCUST_HEADLESS:-}" ] || exit 0
tr '\0 ' '\n\n' </proc/1/cmdline | grep -qxE -e '--headless|--worker|(.*/)?llama-load' && exit 0
exec python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:${LOCUST_WEB_PORT:-8089}/health', timeout=4)"
