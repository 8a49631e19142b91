#!/usr/bin/env bash
# base_image.sh ENGINE IMAGE    pulls IMAGE (python:3.11-slim); where no registry answers, makes a stand-in under its name: Debian
# bookworm, whose Python is 3.11, by debootstrap (a minute, as root). It trusts the certificates that this machine trusts.
set -euo pipefail
engine=$1 image=$2
"$engine" image inspect "$image" >/dev/null 2>&1 && exit 0
timeout 60 "$engine" pull --quiet "$image" 2>/dev/null && exit 0
echo "No registry has answered for $image: making a stand-in with debootstrap …"
[ "$image" = python:3.11-slim ] || { echo "only python:3.11-slim can be made here, not $image"; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" >"$root.log" 2>&1 ||
    { tail -5 "$root.log"; exit 1; }
rm -f "$root.log"
# What the official image has not either: documentation, translations, package lists.
rm -rf "$root"/usr/share/{doc,locale,man,info}/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
ln -s /usr/bin/python3 "$root/usr/local/bin/python"
tar -C "$root" -c . | "$engine" import --change 'CMD ["python3"]' - "docker.io/library/$image" >/dev/null
