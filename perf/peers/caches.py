"""How much memory calls must pass over so that their data comes from memory and not from a cache."""

import pathlib

CPUS = "/sys/devices/system/cpu"
LEAST_FOOTPRINT_BYTES = 256 << 20


def largest_l3_bytes(cpus=CPUS):
    """The largest third-level cache of any CPU. 0: unknown, or there is none."""
    largest = 0
    for cache in pathlib.Path(cpus).glob("cpu[0-9]*/cache/index*"):
        try:
            if (cache / "level").read_text().strip() != "3":
                continue
            size = (cache / "size").read_text().strip()
            scale = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:])
            largest = max(largest, int(size[:-1]) * scale if scale else int(size))
        except (OSError, ValueError):
            continue  # some virtual machines do not tell
    return largest


def footprint_bytes(cpus=CPUS):
    """Of the rotated buffers of all ranks together: twice the largest third-level cache, and 256 MiB at least."""
    return max(LEAST_FOOTPRINT_BYTES, 2 * largest_l3_bytes(cpus))
