#!/bin/busybox sh
# The first process of an emulated machine (soft_roce.sh): loads modules and mounts the outer machine's files under a
# layer in memory.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/mods/$module" 2>/dev/null; done < /mods/order
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$options,ro,cache=loose" host /host || poweroff -f
mount -t tmpfs -o size=75% tmpfs /tmp
mkdir /tmp/upper /tmp/work
mount -t overlay -o lowerdir=/host,upperdir=/tmp/upper,workdir=/tmp/work overlay /new || poweroff -f
for folder in proc sys dev; do mount --move "/$folder" "/new/$folder"; done
mkdir -p /new/dev/shm /new/dev/pts
mount -t tmpfs tmpfs /new/run
mount -t tmpfs tmpfs /new/dev/shm
mount -t devpts devpts /new/dev/pts
ln -s /proc/self/fd /new/dev/fd
ln -s /proc/self/fd/0 /new/dev/stdin
ln -s /proc/self/fd/1 /new/dev/stdout
ln -s /proc/self/fd/2 /new/dev/stderr
mkdir /new/run/job
mount -t 9p -o "$options,rw" job /new/run/job
exec chroot /new /bin/bash /run/job/guest
