#!/usr/bin/env bash
# Runs the steps of the Dockerfile where no container engine is at hand, and then what they made.
#
# Each base image is stood in for by a root of its own, made with debootstrap: the build stage by Debian bookworm with what
# rust:…-slim-bookworm adds to it (gcc, libc6-dev, certificates, and this machine's Rust toolchain), the last stage by the few
# packages that distroless/cc-debian12 consists of, unpacked without a package manager or a shell. FROM, WORKDIR, ARG, ENV, COPY,
# RUN, USER are read out of the Dockerfile and done in order; .dockerignore decides what can be copied. Crates come from this
# machine's cache (cargo fetch), so nothing is loaded inside. An instruction that is not known ends the proof.
#
# It does not prove that the named base images are what is said here, nor the layer cache, EXPOSE, VOLUME.
#
# The stand-ins stay in the work directory, and a second run there starts from them; all that the Dockerfile does is done anew.
#
# Usage: deploy/prove-dockerfile.sh [WORK-DIRECTORY]     as root, on Debian or Ubuntu with debootstrap, git, cargo; some ten minutes
# Environment: PROOF_MIRROR, a Debian mirror, by default the first in this machine's apt sources.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "proof: $*" >&2; }
die() {
    echo "error: $*" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || die "this needs root, for chroot"
command -v debootstrap >/dev/null || die "debootstrap is not here: apt-get install debootstrap"

work=${1:-$(mktemp -d)}
mkdir -p "$work"
mirror=${PROOF_MIRROR:-$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list* 2>/dev/null | tr -d ' ' | sort -u | sed -n 1p || true)}
mirror=${mirror:-http://deb.debian.org/debian}

# What a base image brings along. $1: image, $2: root
base() {
    [ -e "$2/.made" ] && return
    case "$1" in
        rust:*-slim-bookworm)
            debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev bookworm "$2" "$mirror" >"$work/debootstrap.log"
            mkdir -p "$2/usr/local/cargo"
            mkdir "$2/usr/local/rust"
            tar -c -C "$(rustc --print sysroot)" --exclude=./share . | tar -x -C "$2/usr/local/rust"
            cargo fetch --locked --quiet
            cp -a "${CARGO_HOME:-$HOME/.cargo}/registry" "$2/usr/local/cargo/"
            ;;
        gcr.io/distroless/cc-debian12:nonroot)
            mkdir -p "$2" "$work/debs"
            (cd "$work/debs" && chroot "$work/base-1" apt-get download --print-uris \
                base-files netbase tzdata media-types ca-certificates libc6 libgcc-s1 libgomp1 libstdc++6 libssl3 |
                tr -d "'" | awk '{ print $1 }' | xargs -n 1 curl -fsSLO)
            for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$2"; done
            # The image has the files of these packages, and nothing to run.
            rm -rf "$2"/bin "$2"/sbin "$2"/usr/bin "$2"/usr/sbin "$2"/usr/share/doc "$2"/etc/update-motd.d
            mkdir -p "$2/tmp" "$2/etc" "$2/home/nonroot"
            chmod 1777 "$2/tmp"
            echo 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' >"$2/etc/passwd"
            echo 'nonroot:x:65532:' >"$2/etc/group"
            ;;
        *) die "no stand-in for the base image $1" ;;
    esac
    touch "$2/.made"
}

# What may be copied: what git knows or would take (no build output), minus .dockerignore, in which only the lines with ! add.
context=$work/context
rm -rf "$context"
mkdir -p "$context"
sed -n 's/^!//p' .dockerignore | while read -r path; do
    git ls-files --cached --others --exclude-standard -- "$path"
done | tar -c --files-from=- | tar -x -C "$context"

commit=$(git rev-parse HEAD)
declare -A roots variables
stage=0 root='' directory=/ user=0

# Puts into `inside` what runs a command in the root as a container would: as the user, with only the variables of the Dockerfile, and
# with /proc (without it a program does not find what lies beside it), in mounts of its own that end with it.
enter() {
    mkdir -p "$root/proc"
    inside=(unshare --mount sh -c 'mount --bind /proc "$1/proc" && shift && exec "$@"' sh "$root")
    inside+=(env -i PATH=/usr/local/rust/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true)
    for name in "${!variables[@]}"; do inside+=("$name=${variables[$name]}"); done
    inside+=(chroot --userspec="$user" "$root")
}

copy() { # [--from=STAGE] [--chown=U:G] SOURCE… TARGET
    local from=$context owner=0:0
    while [[ $1 == --* ]]; do
        case "$1" in
            --from=*) from=${roots[${1#--from=}]} ;;
            --chown=*) owner=${1#--chown=} ;;
            *) die "COPY $1" ;;
        esac
        shift
    done
    local target=${*: -1}
    [[ $target == /* ]] || target=${directory%/}/$target
    for source in "${@:1:$#-1}"; do
        [ -e "$from/$source" ] || die "COPY $source: it is not there, or .dockerignore keeps it out"
        if [ -d "$from/$source" ]; then
            mkdir -p "$root/$target"
            # As Docker does: the content of a directory, not the directory. Links among the root's own directories are followed.
            tar -c -C "$from/$source" --owner="${owner%:*}" --group="${owner#*:}" . | tar -x -C "$root/$target" --keep-directory-symlink --same-owner
        elif [[ $target == */ ]]; then
            mkdir -p "$root/$target"
            cp -p "$from/$source" "$root/$target"
        else
            cp -p "$from/$source" "$root/$target"
        fi
    done
}

step() { # instruction, the rest
    local rest=$2
    case "$1" in
        FROM)
            stage=$((stage + 1)) root=$work/stage-$stage directory=/ user=0
            rm -rf "$root"
            variables=()
            read -r image _ name <<<"$rest"
            base "$image" "$work/base-$stage"
            cp -a --reflink=auto "$work/base-$stage" "$root"
            roots[${name:-$stage}]=$root
            ;;
        WORKDIR) directory=$rest && mkdir -p "$root/$directory" ;;
        ARG) variables[${rest%%=*}]=$commit ;;
        ENV) for setting in $rest; do variables[${setting%%=*}]=${setting#*=}; done ;;
        # shellcheck disable=SC2086 # words
        COPY) copy $rest ;;
        RUN) enter && "${inside[@]}" /bin/sh -c "cd '$directory' && $rest" ;;
        USER) [ "$rest" = nonroot ] && user=65532:65532 ;;
        HEALTHCHECK) health=$(sed 's/.*CMD \[\(.*\)\]/\1/; s/[",]//g' <<<"$rest") ;;
        ENTRYPOINT | CMD) start+=" $(tr -d '[]",' <<<"$rest")" ;;
        EXPOSE | VOLUME) ;;
        *) die "the Dockerfile has an instruction that this does not know: $1" ;;
    esac
}

health='' start=''
while read -r instruction rest; do
    say "$instruction $rest"
    step "$instruction" "$rest"
done < <(sed -e '/^#/d' -e '/^$/d' Dockerfile | sed -e ':join' -e '/\\$/{N;s/\\\n *//;bjoin' -e '}')

say "what was made"
find "$root" -xdev -type f -perm /111 -not -name '*.so*' | sed "s|^$root||" | tee "$work/programs"
[ "$(cat "$work/programs")" = /usr/local/bin/weir ] || die "there is something to run besides weir"
for shell in sh bash busybox; do
    ! find "$root" -name "$shell" | grep -q . || die "there is a $shell"
done
du -sh "$root" "$root/usr/local/bin/weir"

# A port of its own in place of 8080: other proofs, and services, run on this machine.
port=$((RANDOM % 10000 + 20000))
for name in "${!variables[@]}"; do variables[$name]=${variables[$name]//8080/$port}; done
enter

say "it starts as $user, and is not well before it runs"
# shellcheck disable=SC2086 # words
! "${inside[@]}" $health 2>/dev/null || die "healthy without a service"
# shellcheck disable=SC2086
"${inside[@]}" $start 2>"$work/log" &
service=$!
trap 'kill "$service" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    # shellcheck disable=SC2086
    "${inside[@]}" $health 2>/dev/null && break
    sleep 0.1
done
# shellcheck disable=SC2086
"${inside[@]}" $health || { cat "$work/log" >&2; die "it is not healthy"; }
curl -fsS -d '{"user":"alice"}' "http://127.0.0.1:$port/v1/check"
echo
[ "$(stat -c %u "$root/var/lib/weir/admin-token")" = 65532 ] || die "its data is not its own"
"${inside[@]}" /usr/local/bin/weir --version | tee "$work/version"
grep -q "(${commit:0:12})" "$work/version" || die "the version does not name the commit"
kill -s TERM "$service"
wait "$service" || die "it did not end with 0"
trap - EXIT
say "proved: every step of the Dockerfile, and the image's root: no shell, one program, not root, healthy, stopped with 0"
