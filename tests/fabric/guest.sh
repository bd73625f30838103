#!/usr/bin/env bash
# Runs in an emulated machine (soft_roce.sh): makes the network and the RDMA devices, runs the command, switches off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
out=/dev/null err=/dev/null
for port in /sys/class/virtio-ports/vport*; do
  read -r name < "$port/name"
  case $name in
    out) out=/dev/${port##*/} ;;
    err) err=/dev/${port##*/} ;;
  esac
done
switch_off() {
  echo o > /proc/sysrq-trigger
  read -rt 20 <> <(:) || :
}
rank=$(sed -n 's/.*MACHINE_RANK=\([0-9]*\).*/\1/p' /run/job/command)
devices=$(sed -n 's/.*MACHINE_DEVICES=\([0-9]*\).*/\1/p' /run/job/command)
echo "machine$rank" > /proc/sys/kernel/hostname
ulimit -l unlimited
# Packets between two addresses of this machine cross the bridge.
settings=/proc/sys/net/ipv4/conf
for setting in all/accept_local=1 all/rp_filter=0 default/rp_filter=0 all/arp_ignore=1 all/arp_announce=2; do
  echo "${setting#*=}" > "$settings/${setting%=*}"
done
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
{
  echo "link set lo up"
  echo "link add br0 mtu 9000 type bridge forward_delay 0"
  echo "link set br0 up"
  echo "addr add 198.19.0.$((rank + 1))/24 dev br0"
  if [[ -e /sys/class/net/eth0 ]]; then echo "link set eth0 mtu 9000 master br0 up"; fi
  for ((i = 0; i < devices; i++)); do
    echo "link add rdma$i mtu 9000 type veth peer name switch$i mtu 9000"
    echo "link set switch$i master br0 up"
    echo "link set rdma$i up"
    echo "addr add 198.18.0.$((32 * rank + i + 1))/24 dev rdma$i"
  done
} | ip -b -
for ((i = 0; i < devices; i++)); do echo "link add rxe$i type rxe netdev rdma$i"; done | rdma -b /dev/stdin
if [[ $devices -eq 0 || -e /sys/class/infiniband/rxe$((devices - 1)) ]]; then
  bash /run/job/command < /dev/null > "$out" 2> "$err"
  echo $? > /run/job/status
fi
switch_off
