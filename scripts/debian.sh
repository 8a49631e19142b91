#!/usr/bin/env bash
# Installs what heavy tests need of Debian, if it is not there: nginx, iproute2, iptables and curl for proxies and several hosts,
# chromium for pages, a C compiler for an NVIDIA driver that is none.
set -euo pipefail
missing=()
export PATH=$PATH:/usr/sbin
for pair in nginx:nginx-light ip:iproute2 iptables:iptables curl:curl chromium:chromium cc:build-essential; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]} …"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
