#!/usr/bin/env bash
# Tries the wheel for arm64 under qemu-user, in Debian's Python 3.11 for arm64 with the newest torch of ci/torch.txt: the
# command, and training on two ranks. Like ci/arm64.sh it runs on one processor and shows nothing about memory ordering.
# It needs make wheels PYTHON_VERSION=3.11 WHEELS_ARGS="--machine aarch64", root, and 6 GB, which it frees unless KEEP=1.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
wheel=$(ls dist/goccl-*-cp311-cp311-manylinux*_aarch64.whl 2>/dev/null) || {
    echo 'first: make wheels PYTHON_VERSION=3.11 WHEELS_ARGS="--machine aarch64"' >&2
    exit 2
}
for each in debootstrap qemu-aarch64-static; do
    command -v "$each" >/dev/null || { echo "missing: apt-get install -y debootstrap qemu-user-static" >&2 && exit 2; }
done
root=$ROOT/build/wheels/arm64
[ -n "${KEEP:-}" ] || trap 'rm -rf "$root"' EXIT

if [ ! -e "$root/made" ]; then
    rm -rf "$root"
    # Only unpacked: what packages do when they are installed are programs of arm64.
    debootstrap --foreign --arch=arm64 --variant=minbase --include=python3,libstdc++6 bookworm "$root" >"$root.log"
    for each in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$each" "$root"; done
    # What torch's import reads about processors, and would crash without: qemu shows programs those of the host.
    mkdir -p "$root"/proc "$root"/sys/devices/system/cpu/cpu0/regs/identification
    echo 0x00000000410fd083 >"$root/sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
    printf '%s\t: %s\n' processor 0 Features 'fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid' 'CPU implementer' 0x41 \
        'CPU architecture' 8 'CPU variant' 0x0 'CPU part' 0xd08 'CPU revision' 3 >"$root/proc/cpuinfo"
    read -r torch _ pins < <(grep -v '^#' ci/torch.txt | tail -n 1)
    # shellcheck disable=SC2046,SC2086 # words
    python3 -m pip install -q --target "$root/site" --only-binary :all: --python-version 3.11 \
        $(printf -- '--platform manylinux_2_%d_aarch64 ' $(seq 17 34)) --platform manylinux2014_aarch64 \
        "torch==$torch" numpy -c <(printf '%s\n' $pins)
    touch "$root/made"
fi
rm -rf "$root/goccl"
python3 -m zipfile -e "$wheel" "$root/goccl"
chmod +x "$root"/goccl/*.data/scripts/goccl # which pip does
sed -n '/title="train.py"/,/^```$/ { /^```/d; p }' docs/start/cpu.md >"$root/train.py"

processor=$(sed -nE 's/^Cpus_allowed_list:[[:space:]]*([0-9]+).*/\1/p' /proc/self/status)
# Each in a PID namespace of its own: qemu tells a process another start of itself than others are told, and so a rank
# would take the other for one that has ended, and whose number another process has.
emulated=(taskset -c "$processor" unshare --pid --fork --kill-child --mount-proc
    qemu-aarch64-static -cpu cortex-a72 -L "$root")
"${emulated[@]}" "$(echo "$root"/goccl/*.data/scripts/goccl)" version
export PYTHONHOME=$root/usr PYTHONPATH=$root/goccl:$root/site MASTER_ADDR=127.0.0.1 MASTER_PORT=29671 WORLD_SIZE=2
start=$SECONDS
RANK=1 timeout 900 "${emulated[@]}" "$root/usr/bin/python3.11" "$root/train.py" &
RANK=0 timeout 900 "${emulated[@]}" "$root/usr/bin/python3.11" "$root/train.py" | tee "$root/said"
wait $!
grep -q '^2 ranks, loss 0.00' "$root/said"
echo "test-wheels-arm64: passed in $((SECONDS - start)) s"
