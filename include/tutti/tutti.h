/* tutti: collective communication over host memory and CUDA memory, between threads and processes.
 *
 * This is the only header a user needs. It compiles alone as C11 and as C++20.
 *
 * Conventions that hold for every call unless its comment says otherwise:
 *  - Return: TUTTI_SUCCESS, or an error code; tutti_last_error() then holds one sentence naming the
 *    argument or the rank, peer and value involved, and what to do about it.
 *  - Arguments are checked before any state changes: after TUTTI_INVALID_ARGUMENT and
 *    TUTTI_INVALID_USAGE nothing was sent and the communicator is as it was.
 *  - Errors found between ranks (TUTTI_MISMATCH, TUTTI_PEER_LOST, TUTTI_TIMEOUT, TUTTI_ABORTED) put the
 *    communicator in error: output buffers are undefined, and only shrink, abort and destroy remain legal.
 *  - Counts are elements of the given type; sizes are bytes where the name says so.
 *  - Buffers belong to the caller. With TUTTI_BLOCKING they are free again on return; on a stream,
 *    when the stream has passed the operation. Arrays of counts are copied at the call.
 *  - A rank is in host memory, or on a CUDA device (config.device): its buffers are host memory, or memory
 * that the device can reach (its own, pinned, managed).
 *  - Every rank of a communicator makes the same collective calls in the same order. Calls of one
 *    communicator run in issue order, across streams too.
 *  - Distinct communicators may be used from distinct threads at once; one communicator by one
 *    thread at a time.
 */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
/* major * 10000 + minor * 100 + patch */
#define TUTTI_VERSION_CODE 100

#if defined(TUTTI_STATIC)
#define TUTTI_API
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif

/* TUTTI_ANY_INT: in C any int may be passed for an enum; so it may in C++. */
#ifdef __cplusplus
#define TUTTI_NOEXCEPT noexcept
#define TUTTI_ANY_INT : unsigned int
extern "C" {
#else
#define TUTTI_NOEXCEPT
#define TUTTI_ANY_INT
#endif

/* ---- results ------------------------------------------------------------------------------- */

typedef enum tutti_result_t TUTTI_ANY_INT {
  TUTTI_SUCCESS = 0,
  TUTTI_INVALID_ARGUMENT = 1, /* an argument is wrong; nothing was sent */
  TUTTI_INVALID_USAGE = 2,    /* the call is not legal in this state; nothing was sent */
  TUTTI_SYSTEM_ERROR = 3,     /* the operating system refused something */
  TUTTI_OUT_OF_MEMORY = 4,
  TUTTI_INTERNAL_ERROR = 5,    /* a bug in tutti */
  TUTTI_UNSUPPORTED = 6,       /* legal, but not on this machine or in this build */
  TUTTI_PEER_LOST = 7,         /* a rank's process has died */
  TUTTI_TIMEOUT = 8,           /* the deadline passed */
  TUTTI_MISMATCH = 9,          /* ranks made different calls */
  TUTTI_ABORTED = 10,          /* this or another rank called tutti_comm_abort */
  TUTTI_VERSION_MISMATCH = 11, /* a peer runs another version of tutti */
  TUTTI_IN_PROGRESS = 12       /* non-blocking set-up, or a stream's work, is not finished */
} tutti_result_t;

/* A fixed English name of the code; never NULL, for any value. */
TUTTI_API const char* tutti_error_string(tutti_result_t result) TUTTI_NOEXCEPT;

/* The text of the calling thread's last failed call; "" if none. Valid until that thread's next call. */
TUTTI_API const char* tutti_last_error(void) TUTTI_NOEXCEPT;

/* *version = TUTTI_VERSION_CODE of the library that runs. TUTTI_INVALID_ARGUMENT: version is NULL. */
TUTTI_API tutti_result_t tutti_get_version(int* version) TUTTI_NOEXCEPT;

/* ---- types and operators ------------------------------------------------------------------- */

typedef enum tutti_type_t TUTTI_ANY_INT {
  TUTTI_INT8 = 0,
  TUTTI_UINT8 = 1,
  TUTTI_INT32 = 2,
  TUTTI_UINT32 = 3,
  TUTTI_INT64 = 4,
  TUTTI_UINT64 = 5,
  TUTTI_FLOAT16 = 6, /* IEEE binary16; sums accumulate in float32 */
  TUTTI_FLOAT32 = 7,
  TUTTI_FLOAT64 = 8,
  TUTTI_BFLOAT16 = 9,     /* sums accumulate in float32 */
  TUTTI_FLOAT8_E4M3 = 10, /* OCP E4M3 (no infinity; overflow becomes NaN); float32 accumulation */
  TUTTI_FLOAT8_E5M2 = 11, /* OCP E5M2; float32 accumulation */
  TUTTI_INT16 = 12,
  TUTTI_UINT16 = 13,
  TUTTI_BOOL = 14, /* one byte, 0 or 1: sum and max are or, prod and min are and */
  TUTTI_TYPE_COUNT = 15
} tutti_type_t;

typedef enum tutti_op_t TUTTI_ANY_INT {
  TUTTI_SUM = 0,
  TUTTI_PROD = 1,
  TUTTI_MAX = 2, /* a NaN among the operands gives NaN */
  TUTTI_MIN = 3,
  TUTTI_AVG = 4,  /* sum, then divided by the rank count; integers truncate toward zero; not bool */
  TUTTI_BAND = 5, /* bitwise operators: integers only */
  TUTTI_BOR = 6,
  TUTTI_BXOR = 7,
  TUTTI_OP_COUNT = 8,
  /* values between are made by tutti_op_create_premul_sum */
  TUTTI_OP_LAST = 0x7fffffff
} tutti_op_t;

/* Bytes of one element; 0 for an unknown type. */
TUTTI_API size_t tutti_type_bytes(tutti_type_t type) TUTTI_NOEXCEPT;

/* ---- streams ------------------------------------------------------------------------------- */

typedef struct tutti_host_stream tutti_host_stream_t;

/* Where an operation is ordered: a tagged value, made by the functions below. */
typedef struct tutti_stream_t {
  uint32_t kind; /* 0 blocking, 1 host stream, 2 CUDA stream */
  uint32_t reserved;
  void* handle;
} tutti_stream_t;

static inline tutti_stream_t tutti_stream_make_(uint32_t kind, void* handle) {
  tutti_stream_t s;
  s.kind = kind;
  s.reserved = 0;
  s.handle = handle;
  return s;
}
/* The call returns when the operation is complete on this rank. */
#define TUTTI_BLOCKING tutti_stream_make_(0u, NULL)
/* The call returns at once; a progress thread runs the operation after the stream's earlier ones. */
static inline tutti_stream_t tutti_stream_host(tutti_host_stream_t* stream) {
  return tutti_stream_make_(1u, stream);
}
/* A cudaStream_t of the rank's device, which may be 0 (the null stream): the call returns at once, and the
 * operation runs after what the stream holds. Errors found later put the communicator in error
 * (tutti_comm_async_error), and the stream goes on. A stream that is being captured records the operation:
 * the graph may be launched as often as wanted, in the same order on all ranks, while the communicator lives
 * and none of its other operations is under way. Not where calls pass through host memory (config.device):
 * there a stream that is being captured is TUTTI_UNSUPPORTED, and nothing was recorded. Only for ranks on a
 * device: TUTTI_UNSUPPORTED otherwise. Ranks that share a stream make their calls in one group: outside of
 * it the second would wait for the first. */
static inline tutti_stream_t tutti_stream_cuda(void* stream) {
  return tutti_stream_make_(2u, stream);
}

/* On success the caller owns *stream until tutti_host_stream_destroy. */
TUTTI_API tutti_result_t tutti_host_stream_create(tutti_host_stream_t** stream) TUTTI_NOEXCEPT;
/* Blocks until all operations issued so far are complete; returns the first error among them. */
TUTTI_API tutti_result_t tutti_host_stream_synchronize(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;
/* TUTTI_SUCCESS when idle, TUTTI_IN_PROGRESS when not, else the first error. Does not block. */
TUTTI_API tutti_result_t tutti_host_stream_query(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;
/* Synchronizes, then frees; the handle is dead even when an error is returned. NULL is accepted. */
TUTTI_API tutti_result_t tutti_host_stream_destroy(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;

/* ---- communicators ------------------------------------------------------------------------- */

typedef struct tutti_comm tutti_comm_t;

/* Names a communicator to be. Made by one rank, carried to the others by any means (128 bytes,
 * no pointers inside). It holds a secret: whoever has it may join. */
typedef struct tutti_unique_id_t {
  char bytes[128];
} tutti_unique_id_t;

/* Versioned by `size`: a caller built against an older header passes a shorter struct and gets the
 * defaults for the rest; a longer one is accepted when its tail is zero. Start from TUTTI_CONFIG_INIT.
 * Environment variables (docs/configuration.md) override the defaults, fields set here override both. */
typedef struct tutti_config_t {
  size_t size;
  int device;          /* -1: host memory. 0..: a CUDA device, by its number in this process
                          (TUTTI_UNSUPPORTED without CUDA). Each rank's own: where not all are on devices
                          of one host that reach each other, calls pass through host memory */
  int nonblocking;     /* 1: tutti_comm_create returns TUTTI_IN_PROGRESS; poll tutti_comm_async_error */
  int reproducible;    /* 1: same bits for any algorithm, placement, message size. Agreed by all ranks */
  int threads;         /* threads that work on one long operation of this rank, 1..16; 0: default (1).
                          Agreed by all ranks */
  uint64_t timeout_ms; /* deadline of one operation; 0: default (600,000); tutti_comm_set_timeout */
  uint64_t setup_timeout_ms; /* deadline of set-up; 0: default (120,000) */
} tutti_config_t;

#ifdef __cplusplus
#define TUTTI_CONFIG_INIT                     \
  tutti_config_t {                            \
    sizeof(tutti_config_t), -1, 0, 0, 0, 0, 0 \
  }
#else
#define TUTTI_CONFIG_INIT \
  { sizeof(tutti_config_t), -1, 0, 0, 0, 0, 0 }
#endif

/* Fills *id and starts listening in this process for the ranks that will use it: those of this host at a Unix
 * socket, those of other hosts at a TCP port (environment: TUTTI_SOCKET_IFNAME, TUTTI_PORT_RANGE). The
 * process must live until all ranks have joined. Who holds the id may join: pass it on in confidence.
 * Listening takes a few file descriptors, given back when the ranks have met: an id that no rank uses keeps
 * them until the process ends. When they fail to meet, the reason is kept for ranks that come late, until all
 * have heard of it or the set-up deadline of the environment (TUTTI_SETUP_TIMEOUT_MS) has passed once more;
 * of the last 16 ids that failed. Where the environment of this process is refused, the id is made all the
 * same, and tutti_comm_create says what is wrong on every rank. Does not block. */
TUTTI_API tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id) TUTTI_NOEXCEPT;

/* How the id that rank 0 has made reaches the others. Each call is made by all ranks, blocks until the id is
 * there or `timeout_ms` (0: the set-up deadline) has passed, reads *id on rank 0 and fills it on the others.
 *
 * `where` is one of
 *
 * - "launcher": as the launcher that started the processes allows: the file that TUTTI_ID_FILE names, as
 *   below; PMI; PMIx; a socket of the one host; or the address that it gives (then TUTTI_KEY must be set).
 * - "tutti://HOST:PORT": rank 0 listens there, on HOST; TUTTI_KEY or TUTTI_KEY_FILE is the same on all ranks.
 * - "file:PATH": a file that all ranks reach; it must not exist, and rank 0 removes it: tutti_forget_file.
 *
 * When the bootstrap at an address fails, rank 0 stays in the call until all ranks have heard why, at most 5
 * s and not past the deadline.
 *
 * Errors: TUTTI_INVALID_ARGUMENT (where, rank, an id of rank 0 that tutti_get_unique_id has not made),
 * TUTTI_INVALID_USAGE (no launcher, no key, the file exists or is of an earlier run), TUTTI_TIMEOUT,
 * TUTTI_SYSTEM_ERROR, TUTTI_PEER_LOST. */
TUTTI_API tutti_result_t tutti_share_unique_id(tutti_unique_id_t* id, const char* where, int rank,
                                               int rank_count, uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* A key-value store of the caller, as frameworks have. The functions return 0 on success; they are called by
 * the thread that shares only, and must not call tutti. */
typedef struct tutti_store_t {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits until the key is there, at most timeout_ms, and fills exactly `bytes` of value. */
  int (*get)(void* context, const char* key, void* value, size_t bytes, uint64_t timeout_ms);
} tutti_store_t;

/* The same by a store: rank 0 sets `key`, which serves once. Errors: TUTTI_SYSTEM_ERROR (the store failed),
 * TUTTI_MISMATCH (the key holds something else). */
TUTTI_API tutti_result_t tutti_share_unique_id_by_store(tutti_unique_id_t* id, const tutti_store_t* store,
                                                        const char* key, int rank,
                                                        uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* Removes the file of "file:PATH", or of "launcher" where that is one, once all ranks have a communicator; on
 * ranks other than 0, and where there is none, nothing. */
TUTTI_API tutti_result_t tutti_forget_file(const char* where, int rank) TUTTI_NOEXCEPT;

/* The place of this process in its job, from the environment of torchrun, Open MPI, MPICH, Slurm, PMIx or
 * Kubernetes; rank 0 of 1 where no launcher started it. local_rank and local_count are -1 where the launcher
 * does not say. Any pointer may be NULL. Errors: TUTTI_INVALID_USAGE naming variables that contradict each
 * other. */
TUTTI_API tutti_result_t tutti_launcher_place(int* rank, int* rank_count, int* local_rank,
                                              int* local_count) TUTTI_NOEXCEPT;

/* Joins a communicator of rank_count ranks (1 to 4096) as `rank`. Blocks until all have joined or the set-up
 * deadline has passed. config may be NULL. On success the caller owns *comm until
 * tutti_comm_destroy or tutti_comm_abort; on failure *comm is NULL.
 * A failure of any rank, a refused environment included, is the error of all, with its text, also of ranks
 * that come afterwards. So that these still find somebody, the process that made the id stays in the failing
 * call until all ranks have heard, at most 5 s and not past the deadline; other processes return at once.
 * (With config.nonblocking the caller does not wait for that; abort and destroy end it.) Several ranks may be
 * threads of one process. Two calls for one process' thread: see tutti_comm_create_all. Errors:
 * TUTTI_INVALID_ARGUMENT, TUTTI_TIMEOUT (names the absent ranks), TUTTI_PEER_LOST, TUTTI_VERSION_MISMATCH,
 * TUTTI_SYSTEM_ERROR, TUTTI_UNSUPPORTED. */
TUTTI_API tutti_result_t tutti_comm_create(tutti_comm_t** comm, int rank_count, tutti_unique_id_t id,
                                           int rank, const tutti_config_t* config) TUTTI_NOEXCEPT;

/* All rank_count ranks in this process: comms[0..rank_count). All or none are made. */
TUTTI_API tutti_result_t tutti_comm_create_all(tutti_comm_t** comms, int rank_count,
                                               const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Collective on `comm`: ranks of equal color form a new communicator, ordered by key, then by rank.
 * color -1 (TUTTI_NO_COLOR): take part, but get NULL. config NULL: the parent's. */
#define TUTTI_NO_COLOR (-1)
TUTTI_API tutti_result_t tutti_comm_split(tutti_comm_t* comm, int color, int key, tutti_comm_t** new_comm,
                                          const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Goes on without ranks that are lost: the ranks of `comm` that live form a new communicator, in the order of
 * their ranks. All of them call it, whether or not `comm` has failed; ranks in exclude[0..exclude_count) live
 * but are left out, and do not call it; all callers exclude the same. Ranks whose process has ended (_exit
 * included), or that have finalized, are left out by themselves. Blocks until all have met, at most until the
 * set-up deadline, which counts from when this rank's own operations have ended; ranks that are lost
 * meanwhile are left out too, or, when all were ready, lost to the new communicator. All that live get the
 * same one, or an error, after which all may call it again. flags: TUTTI_SHRINK_ABORT ends operations of
 * `comm` that are under way on any rank first, as tutti_comm_abort does; without it they are waited for.
 * `comm` stays the caller's: destroy or abort it. config NULL: the parent's. Errors: TUTTI_TIMEOUT (names who
 * has not come), TUTTI_MISMATCH (other exclusions), TUTTI_INVALID_USAGE (others exclude this rank),
 * TUTTI_PEER_LOST (this rank was stopped or cut off until others gave it up: it cannot come back),
 * TUTTI_UNSUPPORTED (nonblocking), TUTTI_SYSTEM_ERROR (also: one that agreed has given up). */
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tutti_result_t tutti_comm_shrink(tutti_comm_t* comm, const int* exclude, int exclude_count,
                                           int flags, tutti_comm_t** new_comm,
                                           const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Lets new ranks join: a new communicator of rank_count ranks, of which the ranks of `comm` keep theirs.
 * Collective on `comm` (rank -1, or its own), and called by each new rank with comm NULL and its rank, from
 * the old count on. `id` is one that tutti_get_unique_id has made: new ranks must have it, of the ranks of
 * `comm` at least one; the others may pass NULL. config NULL: the parent's, or defaults. Blocks as
 * tutti_comm_create. A rank that dies meanwhile is named to all others, new ones included, at once when it
 * has joined, else as absent at the set-up deadline; where it was a new one `comm` goes on. The ranks of
 * `comm` all get the new communicator, or none does (blocking calls, while they live). Errors: as
 * tutti_comm_create and a collective. */
TUTTI_API tutti_result_t tutti_comm_grow(tutti_comm_t* comm, int rank_count, const tutti_unique_id_t* id,
                                         int rank, tutti_comm_t** new_comm,
                                         const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Waits until everything issued on this rank is complete. Afterwards collectives, send, recv, split,
 * register, mem_alloc, set_timeout and op_create are refused with TUTTI_INVALID_USAGE; what only asks or
 * gives back goes on: rank, count, explain, async_error, deregister, op_destroy, destroy, abort. Returns the
 * first error of the operations that this rank had issued on streams, whether or not a stream has reported it
 * too; the communicator is finalized all the same. Errors of blocking calls were returned by these calls. */
TUTTI_API tutti_result_t tutti_comm_finalize(tutti_comm_t* comm) TUTTI_NOEXCEPT;
/* Finalizes if needed, then frees; the handle is dead even when an error is returned: that of finalize, if
 * nobody has called it before. Not collective: peers need not call it at the same time. NULL is accepted. */
TUTTI_API tutti_result_t tutti_comm_destroy(tutti_comm_t* comm) TUTTI_NOEXCEPT;
/* Wakes every wait on this communicator, on all ranks, with TUTTI_ABORTED, then frees this rank's
 * part. May be called from another thread than the one that waits; that thread's call has returned
 * before the memory is freed. NULL is accepted. */
TUTTI_API tutti_result_t tutti_comm_abort(tutti_comm_t* comm) TUTTI_NOEXCEPT;

/* *error = TUTTI_SUCCESS, TUTTI_IN_PROGRESS (set-up) or what put the communicator in error, learnt
 * from a peer included. Does not block. */
TUTTI_API tutti_result_t tutti_comm_async_error(tutti_comm_t* comm, tutti_result_t* error) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_comm_rank(const tutti_comm_t* comm, int* rank) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_comm_count(const tutti_comm_t* comm, int* rank_count) TUTTI_NOEXCEPT;

/* Deadline of the operations that are issued on `comm` after this call, until the next one of it: when one
 * has made no progress for timeout_ms, every rank gets TUTTI_TIMEOUT. 0: that of the config again. For
 * blocking calls, for operations on streams (those issued before keep theirs), and in groups, where a
 * communicator's sends and receives are one operation, which has the longest of their deadlines. Local: ranks
 * may differ, the first deadline that passes ends the operation on all. For this communicator only: those
 * made from it begin with the config's. Errors: TUTTI_INVALID_ARGUMENT (more than a year). */
TUTTI_API tutti_result_t tutti_comm_set_timeout(tutti_comm_t* comm, uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* One line about the last operation of this rank: collective, bytes, algorithm, why, predicted time.
 * At most `bytes` bytes with the final 0 are written. Waits for what was issued on host streams. Of the
 * thread that uses the communicator. */
TUTTI_API tutti_result_t tutti_comm_explain(const tutti_comm_t* comm, char* text,
                                            size_t bytes) TUTTI_NOEXCEPT;

/* A sum whose operand of this rank is first multiplied by *scalar (of `type`, read at the call; in memory of
 * the rank's CUDA device: read by each operation when it runs, and to be kept until the op is destroyed).
 * The op is legal for `type` and `comm` only, until tutti_op_destroy. Local. Not for bool. */
TUTTI_API tutti_result_t tutti_op_create_premul_sum(tutti_op_t* op, const void* scalar, tutti_type_t type,
                                                    tutti_comm_t* comm) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_op_destroy(tutti_op_t op, tutti_comm_t* comm) TUTTI_NOEXCEPT;

/* ---- memory -------------------------------------------------------------------------------- */

/* Host memory of the symmetric heap, 4096-byte aligned, zeroed: peers on this host can read and write it
 * without a copy. Local, not collective. bytes 0 gives NULL. */
TUTTI_API tutti_result_t tutti_mem_alloc(void** pointer, size_t bytes) TUTTI_NOEXCEPT;
/* Zeroed memory for buffers of `comm`: of the rank's device (whole pieces of 2 MiB), such as
 * tutti_memory_register takes; of the symmetric heap where the rank is in host memory. It may outlive `comm`.
 * Local, not collective. bytes 0 gives NULL. Errors: TUTTI_INVALID_ARGUMENT, TUTTI_INVALID_USAGE,
 * TUTTI_OUT_OF_MEMORY, TUTTI_SYSTEM_ERROR. */
TUTTI_API tutti_result_t tutti_comm_mem_alloc(tutti_comm_t* comm, void** pointer,
                                              size_t bytes) TUTTI_NOEXCEPT;
/* Frees memory of tutti_mem_alloc or tutti_comm_mem_alloc. No operation may use the memory, and the memory
 * may not be registered. NULL is accepted. */
TUTTI_API tutti_result_t tutti_mem_free(void* pointer) TUTTI_NOEXCEPT;

/* Registered memory: every rank of the communicator reaches the memory directly. Each rank registers a buffer
 * of its own. */
typedef struct tutti_registered_memory tutti_registered_memory_t;

/* Registers [buffer, buffer + bytes) of the rank's CUDA device. Ranks of other processes and devices then
 * load from this memory and store to it. Calls whose buffers lie elsewhere copy through memory of the
 * library. A buffer may lie in registered memory as a whole or in part, at any offset. Registration is never
 * needed for correct results; a rank that passes other buffers slows only its own part.
 *
 * Collective: all ranks call, in the order of their collectives, each with its own memory and its own number
 * of bytes. Blocks. Not inside a group. A thread that drives several ranks calls for each rank from another
 * thread, as for tutti_comm_split.
 *
 * *memory is NULL on all ranks where nothing was registered. That is no error: calls go on as before. The
 * cases: ranks in host memory (the call is local there, and peers reach memory of tutti_mem_alloc without
 * registration); calls that pass through host memory; the 512th registration of a communicator; and a rank
 * whose memory the others cannot map. Memory can be mapped if it is one piece of cudaMalloc,
 * tutti_comm_mem_alloc or ncclMemAlloc, or of cuMemCreate that may be shared by file, and overlaps no other
 * registered memory. The rank whose memory cannot be mapped says why on standard error.
 *
 * From 4 ranks on, where a switch gives the devices multicast memory, all_reduce, reduce, broadcast,
 * all_gather and reduce_scatter pass through multicast memory, with and without registration.
 *
 * On success the caller owns *memory until tutti_memory_deregister or the end of the communicator. Do not
 * free the buffer before tutti_memory_deregister has succeeded or the communicator has ended on all ranks.
 * Errors: TUTTI_INVALID_ARGUMENT (NULL, bytes 0, memory that the device cannot reach), TUTTI_INVALID_USAGE,
 * and as a collective. */
TUTTI_API tutti_result_t tutti_memory_register(tutti_comm_t* comm, void* buffer, size_t bytes,
                                               tutti_registered_memory_t** memory) TUTTI_NOEXCEPT;
/* Ends a registration: waits until the rank's operations have ended and all ranks have closed the memory.
 * Then the buffer may be freed. The call does not wait for launches of graphs that were captured with the
 * memory: these must have ended on all ranks, and no more may follow. Collective as tutti_memory_register;
 * all ranks deregister in the same order. Local on a communicator that is finalized. On a communicator in
 * error the call does not wait for ranks that have not come, and returns the error: then keep the buffer
 * until the others have destroyed their communicators. The handle is dead even when the call fails. NULL is
 * accepted, and local. Errors: TUTTI_INVALID_ARGUMENT (not registered memory of this communicator),
 * TUTTI_INVALID_USAGE, TUTTI_TIMEOUT (a rank does not come), TUTTI_PEER_LOST, TUTTI_ABORTED. */
TUTTI_API tutti_result_t tutti_memory_deregister(tutti_comm_t* comm,
                                                 tutti_registered_memory_t* memory) TUTTI_NOEXCEPT;

/* ---- collectives ---------------------------------------------------------------------------
 * P is the rank count. `send` and `recv` may be equal where "in place" says so and must otherwise
 * not overlap. Pointers of empty buffers may be NULL. All may block up to the deadline when
 * `stream` is TUTTI_BLOCKING. Common errors: TUTTI_INVALID_ARGUMENT (NULL pointer, count whose bytes
 * overflow, unknown type or operator, root outside [0, P), overlap), TUTTI_INVALID_USAGE (destroyed,
 * finalized, forked), TUTTI_MISMATCH, TUTTI_PEER_LOST, TUTTI_TIMEOUT, TUTTI_ABORTED (also of every call
 * after the one that put the communicator in error). */

/* recv[i] = op over ranks of send[i]; send, recv: [count]. In place: send == recv. */
TUTTI_API tutti_result_t tutti_all_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_op_t op, tutti_comm_t* comm,
                                          tutti_stream_t stream) TUTTI_NOEXCEPT;
/* As all_reduce, result at root only; recv is ignored elsewhere. */
TUTTI_API tutti_result_t tutti_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                      tutti_op_t op, int root, tutti_comm_t* comm,
                                      tutti_stream_t stream) TUTTI_NOEXCEPT;
/* root's send to every recv, [count]; send is ignored elsewhere. In place: send == recv at root. */
TUTTI_API tutti_result_t tutti_broadcast(const void* send, void* recv, size_t count, tutti_type_t type,
                                         int root, tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* recv[r * count ...) = send of rank r; send: [count], recv: [P * count].
 * In place: send == recv + rank * count. */
TUTTI_API tutti_result_t tutti_all_gather(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* recv = op over ranks of send[rank * count ...); send: [P * count], recv: [count].
 * In place: recv == send + rank * count. */
TUTTI_API tutti_result_t tutti_reduce_scatter(const void* send, void* recv, size_t count, tutti_type_t type,
                                              tutti_op_t op, tutti_comm_t* comm,
                                              tutti_stream_t stream) TUTTI_NOEXCEPT;
/* recv[r * count ...) = rank r's send[rank * count ...); both [P * count]. In place: send == recv. */
TUTTI_API tutti_result_t tutti_all_to_all(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* root's recv[r * count ...) = send of rank r. In place at root: send == recv + root * count. */
TUTTI_API tutti_result_t tutti_gather(const void* send, void* recv, size_t count, tutti_type_t type, int root,
                                      tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* recv = root's send[rank * count ...). In place at root: recv == send + root * count. */
TUTTI_API tutti_result_t tutti_scatter(const void* send, void* recv, size_t count, tutti_type_t type,
                                       int root, tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* Returns when every rank has called it. */
TUTTI_API tutti_result_t tutti_barrier(tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;

/* Variable counts. counts and displacements: [P], in elements; counts are equal on all ranks for the first
 * two. displacements say where the blocks lie in this rank's own buffer and may differ from rank to rank;
 * NULL: blocks follow one another.
 * recv[displacements[r] ...) = rank r's send, [counts[r]]. In place: send == recv + displacements[rank]. */
TUTTI_API tutti_result_t tutti_all_gather_v(const void* send, void* recv, const size_t* counts,
                                            const size_t* displacements, tutti_type_t type,
                                            tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* recv, [counts[rank]] = op over ranks of send[displacements[rank] ...). */
TUTTI_API tutti_result_t tutti_reduce_scatter_v(const void* send, void* recv, const size_t* counts,
                                                const size_t* displacements, tutti_type_t type, tutti_op_t op,
                                                tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* send_counts[r] of this rank must equal recv_counts[this rank] of rank r. In place: not supported. */
TUTTI_API tutti_result_t tutti_all_to_all_v(const void* send, const size_t* send_counts,
                                            const size_t* send_displacements, void* recv,
                                            const size_t* recv_counts, const size_t* recv_displacements,
                                            tutti_type_t type, tutti_comm_t* comm,
                                            tutti_stream_t stream) TUTTI_NOEXCEPT;

/* Point to point. A send meets the peer's recv of the same count, type and tag. Outside a group a pair's
 * messages are received in the order in which they are sent. In a group they travel in order of tag, then of
 * call, so the two sides, each in a group, may list different tags in different orders; messages of one tag
 * do not overtake each other. Outside a group a large send may wait for its recv; to itself a rank sends only
 * inside a group that holds the matching recv. tag: 0..65535. */
TUTTI_API tutti_result_t tutti_send(const void* send, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_recv(void* recv, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;

/* Calls of this thread between start and end, on any communicators, are issued together at the
 * outermost end: sends and receives progress at once, and one thread may drive several ranks.
 * Groups nest. An argument error of a collective, send or recv inside is returned by that call and
 * again by the end, and then nothing of the group was issued; calls that cannot be in a group are refused,
 * and do not spoil it. On streams the calls of one communicator's rank are one
 * operation, whichever streams they name: it begins when all of these have come to it, and all go on when it
 * has ended (streams that are being captured: all in one capture). Calls of other communicators may run
 * beside it. A rank's calls in a group are all blocking, all on host streams or all on CUDA streams:
 * TUTTI_INVALID_USAGE otherwise, at the end. */
TUTTI_API tutti_result_t tutti_group_start(void) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_group_end(void) TUTTI_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_TUTTI_H_ */
