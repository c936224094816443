#!/bin/sh
# Asks Weir whether USER may do something, waits as it says, and asks again: at most TRIES times. Exit 0 when admitted, 1 when not.
#   examples/check.sh USER [COST] && fetch-something
# WEIR_URL says where the service is (default http://127.0.0.1:8080), TRIES how often to ask (default 5).
set -eu
user=${1:?usage: check.sh USER [COST]}
cost=${2:-1}
url=${WEIR_URL:-http://127.0.0.1:8080}
tries=${TRIES:-5}
head=$(mktemp)
trap 'rm -f "$head"' EXIT
while :; do
    # The user travels as a header, which needs no quoting as JSON would.
    status=$(curl -sS -o /dev/null -D "$head" -w '%{http_code}' --max-time 5 -H "X-User-ID: $user" -d "{\"cost\":$cost}" "$url/v1/check")
    [ "$status" = 200 ] && exit 0
    wait=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]*\).*/\1/p' "$head")
    tries=$((tries - 1))
    # Without Retry-After waiting does not help.
    if [ -z "$wait" ] || [ "$tries" -le 0 ]; then
        echo "check.sh: not admitted (HTTP $status)" >&2
        exit 1
    fi
    sleep "$wait"
done
