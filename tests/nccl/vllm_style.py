"""A rank that uses NCCL like Python programs: ctypes on the library that VLLM_NCCL_SO_PATH names.

Usage: vllm_style.py COUNT 0 | COUNT RANK ID | fork COUNT. Rank 0 prints its unique id first, in hexadecimal; each
rank prints "correct". With "fork" this process makes the id and forks the ranks.
"""

import ctypes
import multiprocessing
import os
import sys

NCCL_FLOAT32, NCCL_SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


Result, Comm, Stream, Buffer = ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
FUNCTIONS = {
    "ncclGetErrorString": (ctypes.c_char_p, [Result]),
    "ncclGetVersion": (Result, [ctypes.POINTER(ctypes.c_int)]),
    "ncclGetUniqueId": (Result, [ctypes.POINTER(UniqueId)]),
    "ncclCommInitRank": (Result, [ctypes.POINTER(Comm), ctypes.c_int, UniqueId, ctypes.c_int]),
    "ncclAllReduce": (Result, [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream]),
    "ncclAllGather": (Result, [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, Comm, Stream]),
    "ncclReduceScatter": (Result, [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream]),
    "ncclSend": (Result, [Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream]),
    "ncclRecv": (Result, [Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream]),
    "ncclBroadcast": (Result, [Buffer, Buffer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, Comm, Stream]),
    "ncclGroupStart": (Result, []),
    "ncclGroupEnd": (Result, []),
    "ncclCommWindowRegister": (Result, [Comm, Buffer, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]),
    "ncclCommWindowDeregister": (Result, [Comm, ctypes.c_void_p]),
    "ncclCommDestroy": (Result, [Comm]),
}


class Nccl:
    def __init__(self, path):
        library = ctypes.CDLL(path)
        self.calls = {}
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            self.calls[name] = function

    def __getattr__(self, name):
        def call(*arguments):
            result = self.calls[name](*arguments)
            if result != 0:
                raise RuntimeError(f"{name}: {self.calls['ncclGetErrorString'](result).decode()}")
        return call


def take_part(nccl, count, rank, id_bytes):
    unique_id = UniqueId.from_buffer_copy(id_bytes)
    comm = Comm()
    nccl.ncclCommInitRank(ctypes.byref(comm), count, unique_id, rank)
    send = (ctypes.c_float * 8)(*[rank + 1] * 8)
    recv = (ctypes.c_float * 8)()
    nccl.ncclAllReduce(send, recv, 8, NCCL_FLOAT32, NCCL_SUM, comm, None)
    assert list(recv) == [count * (count + 1) / 2] * 8, list(recv)
    gathered = (ctypes.c_float * (8 * count))()
    nccl.ncclAllGather(send, gathered, 8, NCCL_FLOAT32, comm, None)
    assert list(gathered) == [r + 1 for r in range(count) for _ in range(8)], list(gathered)
    window = ctypes.c_void_p()
    nccl.ncclCommWindowRegister(comm, recv, ctypes.sizeof(recv), ctypes.byref(window), 1)
    nccl.ncclCommWindowDeregister(comm, window)
    nccl.ncclGroupStart()
    nccl.ncclSend(send, 8, NCCL_FLOAT32, (rank + 1) % count, comm, None)
    nccl.ncclRecv(recv, 8, NCCL_FLOAT32, (rank + count - 1) % count, comm, None)
    nccl.ncclGroupEnd()
    assert list(recv) == [(rank + count - 1) % count + 1] * 8, list(recv)
    nccl.ncclCommDestroy(comm)
    sys.stdout.write("correct\n")  # in one piece, even if Python does not buffer: ranks share the pipe
    sys.stdout.flush()


def main():
    nccl = Nccl(os.environ["VLLM_NCCL_SO_PATH"])
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    assert version.value >= 22809, version.value
    forks = sys.argv[1] == "fork"
    if len(sys.argv) == 4:
        id_bytes = bytes.fromhex(sys.argv[3])
    else:
        unique_id = UniqueId()
        nccl.ncclGetUniqueId(ctypes.byref(unique_id))
        id_bytes = bytes(memoryview(unique_id))
    if not forks:
        count, rank = int(sys.argv[1]), int(sys.argv[2])
        if rank == 0:
            print(id_bytes.hex(), flush=True)
        take_part(nccl, count, rank, id_bytes)
        return
    count = int(sys.argv[2])
    start = multiprocessing.get_context("fork").Process
    ranks = [start(target=take_part, args=(nccl, count, rank, id_bytes)) for rank in range(count)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in ranks))


if __name__ == "__main__":
    main()
