#!/usr/bin/env bash
# Installs what the tests against services use of Debian's packages, where that is possible. What is missing is skipped by name.
set -u
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v promtool >/dev/null || missing+=(prometheus)
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing+=(postgresql)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed, and tests that need them are skipped: ${missing[*]}"
  exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
timeout 120 apt-get update -qq >/dev/null 2>&1
timeout 300 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || echo "could not be installed: ${missing[*]}"
exit 0
