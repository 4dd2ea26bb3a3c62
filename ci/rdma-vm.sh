#!/usr/bin/env bash
# Runs one command in a throw-away virtual machine whose kernel has soft RoCE (rdma_rxe):
#
#   ci/rdma-vm.sh CMD [ARG...]             prints CMD's output, exits with CMD's status
#   ci/rdma-vm.sh --prepare                only brings what is needed
#   go test -exec $PWD/ci/rdma-vm.sh PKG   runs the tests of a package in there
#
# The guest sees / of this machine read-only, over virtio-9p and below a tmpfs, so that programs find their libraries as
# here; what CMD writes is lost, but for what is below $RDMA_VM_OUT. The current folder and the variables named in
# $RDMA_VM_ENV go along; RDMA_VM_GUEST=1 says that the machine is one that may be changed. The adapter is rxe0, on lo:
# its GID 1 is ::ffff:127.0.0.1.
#
# Two guests on one wire: start both, with RDMA_VM_LINK=DIR:1 and DIR:2 (DIR: an empty folder). Each then has eth0 too,
# 192.0.2.1 or 192.0.2.2, and rxe1 on it.
#
# RDMA_VM_SMP (2), RDMA_VM_MEM (1024 MiB), RDMA_VM_TIMEOUT (300 s). RDMA_VM_MEMLOCK=KIB limits the memory that CMD may
# lock, which is not limited otherwise. RDMA_VM_VERBOSE=1 prints the guest's console at the end.
#
# Exit status: 124 if the time is up, 125 if the machine failed, 126 with one line of why if none can be had here, else
# CMD's. It needs Linux on amd64, and packages of Debian, which it installs where it may.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 125; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=(qemu-system-x86 busybox-static kmod cpio python3-minimal iproute2 libibverbs1 ibverbs-providers)
modules="virtio_pci virtio_console virtio_net 9pnet_virtio 9p overlay crc32_generic crc32c_generic
    sch_netem sch_ingress cls_u32 act_gact ib_uverbs rdma_ucm rdma_rxe"
link=${RDMA_VM_LINK:-} out=${RDMA_VM_OUT:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

only_prepares=
[ "$1" != --prepare ] || only_prepares=yes
progress() { [ -z "$only_prepares" ] || echo "set-up: virtual machine for RDMA: $*"; }
none() { echo "rdma-vm: $*" >&2; exit 126; }

# What the guest does first.
init() {
    cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
while read -r module; do insmod "/mods/$module"; done </mods/order
p9="-t 9p -o trans=virtio,version=9p2000.L,msize=262144"
mount $p9,ro,cache=loose root /ro
mount -t tmpfs t /rw; mkdir /rw/up /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work o /new
for d in proc sys dev; do mount --move /$d /new/$d; done
mount -t tmpfs t /new/run; mkdir /new/run/job /new/dev/shm /new/dev/pts
mount -t tmpfs t /new/dev/shm; mount -t devpts p /new/dev/pts
mount $p9 job /new/run/job; ln -s /proc/self/fd /new/dev/fd
. /new/run/job/conf
[ -z "$out" ] || { mkdir -p "/new$out"; mount $p9 out "/new$out"; }
chroot /new /bin/bash /run/job/cmd </new/dev/null >/new/dev/vport0p1 2>&1
echo $? >/new/run/job/rc
poweroff -f
INIT
}

missing() {
    local each
    for each in "${packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$each" 2>/dev/null)" = installed ] || echo "$each"
    done
}

install_packages() {
    local lacking
    mapfile -t lacking < <(missing)
    [ ${#lacking[@]} -gt 0 ] || return 0
    progress "packages ${lacking[*]}"
    [ "$(id -u)" = 0 ] || none "these packages are missing, and only root can install them: ${lacking[*]}"
    {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=60 \
            --no-install-recommends "${lacking[@]}"
    } >"$work/log" 2>&1 || none "apt-get could not install ${lacking[*]}: $(tail -n 1 "$work/log")"
}

# Debian's own kernel, unpacked and never installed, becomes $cache/kernel and $cache/initrd.gz.
prepare() {
    local package version module
    cd "$work"
    apt-cache show linux-image-amd64 >/dev/null 2>&1 || apt-get update -qq >"$work/log" 2>&1 || true
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1) || true
    [ -n "$package" ] || none "apt-get knows no package linux-image-amd64"
    version=${package#linux-image-}
    progress "kernel $version, 70 MB"
    apt-get -qq -o APT::Sandbox::User=root download "$package" >"$work/log" 2>&1 ||
        none "apt-get could not download $package: $(tail -n 1 "$work/log")"
    dpkg-deb --fsys-tarfile ./*.deb | tar x ./boot ./lib/modules
    rm ./*.deb
    depmod -b . "$version"
    modprobe -d . -S "$version" --show-depends rdma_rxe >/dev/null 2>&1 || none "$package has no rdma_rxe"

    # The ELF within the compressed image boots by itself, which spares the guest two seconds of emulated work.
    python3 - "boot/vmlinuz-$version" kernel <<'PY'
import lzma, sys
image = open(sys.argv[1], "rb").read()
try:
    elf = lzma.LZMADecompressor().decompress(image[image.index(b"\xfd7zXZ\x00"):])
except (ValueError, lzma.LZMAError):
    elf = b""
open(sys.argv[2], "wb").write(elf if elf[:4] == b"\x7fELF" else image)
PY
    mkdir -p ir/bin ir/mods ir/proc ir/sys ir/dev ir/ro ir/rw ir/new
    cp "$(command -v busybox)" ir/bin/
    # What is missing is part of this kernel, or not needed with it.
    for module in $modules; do modprobe -d . -S "$version" --show-depends "$module" 2>/dev/null || true; done |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
        while read -r module; do
            cp "$module" ir/mods/
            basename "$module" >>ir/mods/order
        done
    init >ir/init
    chmod +x ir/init
    (cd ir && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz
    mkdir -p "$cache"
    mv initrd.gz "$cache/"
    mv kernel "$cache/" # last: then all is there
    cd "$OLDPWD"
}

[ "$(uname -sm)" = "Linux x86_64" ] || none "virtual machines run on Linux on amd64 only"
command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    none "the kernel is Debian's, and this machine has no apt-get"
install_packages
cache=${XDG_CACHE_HOME:-$root/build}/rdma-vm/$({ echo "$modules"; init; } | sha1sum | cut -c1-12)
if [ ! -e "$cache/kernel" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    [ -e "$cache/kernel" ] || prepare
    exec 9>&-
fi
[ -z "$only_prepares" ] || exit 0

mkdir "$work/job"
printf 'out=%q\n' "$out" >"$work/job/conf"
{
    for name in PATH HOME ${RDMA_VM_ENV:-}; do
        [ -z "${!name+x}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    echo 'export RDMA_VM_GUEST=1'
    echo 'set -e; trap "exit 125" ERR'
    echo 'ip link set lo up; rdma link add rxe0 type rxe netdev lo'
    if [ -n "$link" ]; then
        echo "ip addr add 192.0.2.${link##*:}/24 dev eth0; ip link set eth0 mtu 9000 up"
        echo 'rdma link add rxe1 type rxe netdev eth0'
    fi
    printf 'cd %q\n' "$PWD"
    echo "ulimit -l ${RDMA_VM_MEMLOCK:-unlimited}"
    # The limit does not bind whoever has that capability, as root does.
    [ -z "${RDMA_VM_MEMLOCK:-}" ] || printf 'exec setpriv --bounding-set=-ipc_lock '
    [ -n "${RDMA_VM_MEMLOCK:-}" ] || printf 'exec '
    printf '%q ' "$@"
} >"$work/job/cmd"

share() { args+=(-virtfs "local,mount_tag=$1,path=$2,security_model=none${3:-}"); }
args=()
share root / ,readonly=on,multidevs=remap
share job "$work/job"
[ -z "$out" ] || share out "$out"
if [ -n "$link" ]; then
    dir=${link%:*} n=${link##*:}
    args+=(-netdev "dgram,id=n,local.type=unix,local.path=$dir/$n,remote.type=unix,remote.path=$dir/$((3 - n))"
        -device "virtio-net-pci,netdev=n,mac=02:00:00:00:00:0$n")
fi
# KVM is not asked for: where /dev/kvm is emulated itself, it is far slower than no KVM.
setpriv --pdeathsig TERM timeout "${RDMA_VM_TIMEOUT:-300}" qemu-system-x86_64 \
    -accel "${RDMA_VM_ACCEL:-tcg,thread=multi}" -cpu max \
    -M pc -smp "${RDMA_VM_SMP:-2}" -m "${RDMA_VM_MEM:-1024}" \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$cache/kernel" -initrd "$cache/initrd.gz" \
    -append "console=ttyS0 quiet panic=-1 nokaslr mitigations=off" \
    -serial "file:$work/console" \
    -device virtio-serial -chardev file,id=o,path=/dev/stdout -device virtserialport,chardev=o \
    "${args[@]}" </dev/null | cat || vm=$?

[ -z "${RDMA_VM_VERBOSE:-}" ] || cat "$work/console" >&2
if [ -s "$work/job/rc" ]; then exit "$(cat "$work/job/rc")"; fi
[ "${vm:-0}" != 124 ] || { echo "rdma-vm: the time is up" >&2; exit 124; }
[ -n "${RDMA_VM_VERBOSE:-}" ] || cat "$work/console" >&2 || true
echo "rdma-vm: the machine failed" >&2
exit 125
