#!/usr/bin/env bash
# Installs what heavy tests need of Debian, if it is not there: nginx, iproute2, iptables and curl for proxies and several hosts,
# chromium for pages, a C compiler for an NVIDIA driver that is none. Where there is no docker, podman with what it needs to run
# without systemd, and debootstrap for a base image where no registry is reached.
set -euo pipefail
missing=()
export PATH=$PATH:/usr/sbin
for pair in nginx:nginx-light ip:iproute2 iptables:iptables curl:curl chromium:chromium cc:build-essential prometheus:prometheus; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
[ -e /usr/include/openssl/ssl.h ] || missing+=(libssl-dev) # for llama-server's TLS
if ! docker info >/dev/null 2>&1; then
    for pair in podman:podman debootstrap:debootstrap runc:runc /usr/lib/podman/netavark:netavark \
        /usr/lib/podman/aardvark-dns:aardvark-dns catatonit:catatonit; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]} …"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
