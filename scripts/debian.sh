#!/usr/bin/env bash
# Installs what tests of several hosts and of proxies need of Debian: nginx, iproute2, iptables and curl, if they are not there.
set -euo pipefail
missing=()
export PATH=$PATH:/usr/sbin
for pair in nginx:nginx-light ip:iproute2 iptables:iptables curl:curl; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]} …"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
