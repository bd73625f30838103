#!/usr/bin/env bash
# soft_roce.sh: runs a command on machines with Soft-RoCE devices (rdma_rxe), which RDMA programs take for hardware.
#
# usage: soft_roce.sh [-n MACHINES] [-d DEVICES] [-c CORES] [-m MIB] [-t SECONDS] [-v] COMMAND [ARGUMENT...]
#        soft_roce.sh --prepare        only unpacks what is needed
#
# The machines are emulated by qemu, without a kernel module or KVM here. They run Debian's kernel on this machine's
# files: the whole tree is visible, and what a machine writes is thrown away with it. COMMAND runs as root on each
# machine, in this directory, with the exported variables and MACHINE_RANK, MACHINE_COUNT. Its output and exit status
# (the first that is not 0) are this program's; 124: too late, 125: a machine did not start.
#
# On machine r: device rxe0 on interface rdma0, rxe1 on rdma1 ..., with addresses 198.18.0.(32r+1), (32r+2) ...; all
# machines share the network. Interface br0 has 198.19.0.(r+1), for connections that survive `ip link set rdma0 down`.
# Needs: root, apt-get for the kernel, and the packages of group fabric in dev.d/packages.txt. Tried on Debian 12.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${SOFT_ROCE_CACHE:-/var/cache/tutti-soft-roce}
MODULES=(virtio_pci 9pnet_virtio 9p overlay virtio_console virtio_rng virtio_net crc32_generic crc32-pclmul rdma_rxe
  ib_umad veth bridge)
machines=1 devices=2 cores='' mib=2048 seconds=600 verbose=0

check_programs() {
  local program
  for program in qemu-system-x86_64 busybox cpio depmod ip rdma ibv_devinfo; do
    command -v "$program" >/dev/null && continue
    echo "soft_roce.sh: $program is missing; ./dev test fabric installs all that is needed" >&2
    exit 125
  done
}

# fetch_kernel FOLDER: downloads Debian's kernel package and unpacks it there. Prints the kernel's version.
fetch_kernel() {
  cd "$1"
  local package try
  for try in 1 2; do
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
    [[ -n $package ]] && apt-get -o APT::Sandbox::User=root download -qq "$package" >&2 && break
    [[ $try -eq 1 ]] && apt-get update -qq >&2
  done
  dpkg --fsys-tarfile "$package"_*.deb | tar -x ./boot ./lib/modules
  echo "${package#linux-image-}"
}

# pack_initrd KERNEL_FOLDER VERSION: the modules in the order in which they load, busybox and init.
pack_initrd() {
  local folder module file
  folder=$(mktemp -d)
  mkdir -p "$folder"/{bin,mods,host,new,tmp,proc,sys,dev}
  cp /bin/busybox "$folder/bin/"
  cp "$HERE/init.sh" "$folder/init"
  depmod -b "$1" "$2"
  for module in "${MODULES[@]}"; do
    modprobe -d "$1" -S "$2" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
  done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$folder/mods/"
    basename "$file" >> "$folder/mods/order"
  done
  (cd "$folder" && find . | cpio -o -H newc --quiet | gzip -1) > "$CACHE/initrd"
  rm -rf "$folder"
}

prepare() {
  local stamp kernel version
  stamp=$(cat "$HERE/init.sh" "${BASH_SOURCE[0]}" | cksum)
  mkdir -p "$CACHE"
  exec 7> "$CACHE/lock"
  flock 7
  check_programs
  if [[ $(cat "$CACHE/ready" 2>/dev/null) != "$stamp" ]]; then
    kernel=$(mktemp -d)
    version=$(fetch_kernel "$kernel")
    cp "$kernel/boot/vmlinuz-$version" "$CACHE/vmlinuz"
    pack_initrd "$kernel" "$version"
    rm -rf "$kernel"
    echo "$stamp" > "$CACHE/ready"
  fi
  exec 7>&-
}

# The wire between the machines: tap devices on a bridge, in a network namespace that ends with this program.
make_wire() {
  # shellcheck disable=SC2016
  unshare -n bash -c 'ip link add wire mtu 9000 type bridge && ip link set wire up || exit
    for ((r = 0; r < $1; r++)); do
      ip tuntap add "tap$r" mode tap && ip link set "tap$r" mtu 9000 master wire up || exit
    done
    echo ok
    exec sleep "$2"' - "$machines" "$((seconds + 60))" > "$work/wire" &
  wire=$!
  children+=("$wire")
  until [[ -s $work/wire ]]; do
    kill -0 "$wire" || exit 125
    sleep 0.02
  done
}

# start_machine RANK COMMAND...
start_machine() {
  local rank=$1 job=$work/$1 khz arguments
  shift
  mkdir "$job"
  cp "$HERE/guest.sh" "$job/guest"
  { export -p
    echo "export MACHINE_RANK=$rank MACHINE_COUNT=$machines MACHINE_DEVICES=$devices"
    printf 'cd %q\n' "$PWD"
    printf '%q ' "$@"
    echo; } > "$job/command"
  # A guest on a busy machine measures the rate of its clock badly. So it is told.
  khz=$(awk '/bogomips/ { printf "%d", $3 * 500; exit }' /proc/cpuinfo)
  arguments=(-accel tcg,thread=multi -cpu max -smp "$cores" -m "$mib" -display none -nodefaults -no-user-config
    -no-reboot -kernel "$CACHE/vmlinuz" -initrd "$CACHE/initrd"
    -append "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable tsc_early_khz=$khz no_timer_check nowatchdog
      random.trust_cpu=on"
    -serial "file:$job/console" -device virtio-rng-pci -device virtio-serial-pci
    -add-fd fd=8,set=1 -chardev "file,id=out,path=/dev/fdset/1,append=on" -device virtserialport,chardev=out,name=out
    -add-fd fd=9,set=2 -chardev "file,id=err,path=/dev/fdset/2,append=on" -device virtserialport,chardev=err,name=err
    -virtfs "local,path=/,mount_tag=host,security_model=none,multidevs=remap,readonly=on"
    -virtfs "local,path=$job,mount_tag=job,security_model=none,multidevs=remap")
  if [[ $machines -gt 1 ]]; then
    arguments+=(-netdev "tap,id=n,ifname=tap$rank,script=no,downscript=no"
      -device "virtio-net-pci,netdev=n,host_mtu=9000,romfile=,mac=52:54:00:00:00:$(printf %02x $((rank + 1)))")
  fi
  nsenter --net="/proc/$wire/ns/net" timeout "$seconds" qemu-system-x86_64 "${arguments[@]}" \
    < /dev/null 8>&1 9>&2 &
  children+=("$!")
}

# finish_machine RANK PROCESS: waits; the exit status is the command's.
finish_machine() {
  local status=0 job=$work/$1
  wait "$2" || status=$?
  [[ $verbose -eq 0 ]] || cat "$job/console" >&2
  if [[ -s $job/status ]]; then return "$(cat "$job/status")"; fi
  if [[ $status -eq 124 ]]; then
    echo "soft_roce.sh: machine $1 was not done after $seconds s" >&2
    return 124
  fi
  echo "soft_roce.sh: machine $1 did not run the command; the end of its console:" >&2
  tail -n 20 "$job/console" >&2
  return 125
}

main() {
  while [[ $# -gt 0 ]]; do
    case $1 in
      -n) machines=$2; shift 2 ;;
      -d) devices=$2; shift 2 ;;
      -c) cores=$2; shift 2 ;;
      -m) mib=$2; shift 2 ;;
      -t) seconds=$2; shift 2 ;;
      -v) verbose=1; shift ;;
      --prepare) prepare; exit 0 ;;
      -*) echo "soft_roce.sh: unknown option $1" >&2; exit 2 ;;
      *) break ;;
    esac
  done
  [[ $# -gt 0 ]] || { sed -n '2,5p' "${BASH_SOURCE[0]}" >&2; exit 2; }
  if [[ -z $cores ]]; then
    cores=1
    [[ $machines -gt 1 ]] || cores=$(nproc)
  fi
  prepare
  work=$(mktemp -d)
  children=()
  # shellcheck disable=SC2154
  trap 'kill "${children[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
  make_wire
  local rank status=0 one
  for ((rank = 0; rank < machines; rank++)); do start_machine "$rank" "$@"; done
  for ((rank = 0; rank < machines; rank++)); do
    one=0
    finish_machine "$rank" "${children[rank + 1]}" || one=$?
    [[ $status -ne 0 ]] || status=$one
  done
  exit "$status"
}

main "$@"
