/* tutti: collective communication over host memory and CUDA memory, between threads and processes. Users need
 * only this header. It compiles alone as C11 and as C++20.
 *
 * Rules for every call, unless its comment says otherwise:
 * - A call returns TUTTI_SUCCESS or an error code. After an error, tutti_last_error() holds one sentence that
 *   names the argument, or the rank, peer and value, and says what to do.
 * - A call checks its arguments first. After TUTTI_INVALID_ARGUMENT or TUTTI_INVALID_USAGE nothing was sent,
 *   and the communicator is as before.
 * - TUTTI_MISMATCH, TUTTI_PEER_LOST, TUTTI_TIMEOUT and TUTTI_ABORTED put the communicator in error. Output
 *   buffers are then undefined, and only shrink, abort, destroy, deregister and queries are legal.
 * - Counts are elements of the given type. Sizes are bytes where the name says so.
 * - Buffers belong to the caller. They are free again when a TUTTI_BLOCKING call returns, or when the stream
 *   has passed the operation. Arrays of counts are copied at the call.
 * - A rank is in host memory or on a CUDA device (config.device). Its buffers are host memory, or memory that
 *   the device can reach (its own, pinned, managed).
 * - All ranks of a communicator make the same collective calls in the same order. Calls of one communicator
 *   run in the order of issue, across streams too.
 * - Several threads may use different communicators at once. Only one thread at a time may use one
 *   communicator, except for tutti_comm_async_error and tutti_comm_abort.
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

/* TUTTI_ANY_INT: a C caller may pass any int for an enum. This makes it legal in C++ too. */
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
  TUTTI_PEER_LOST = 7,         /* a rank died, left or is cut off */
  TUTTI_TIMEOUT = 8,           /* the deadline passed */
  TUTTI_MISMATCH = 9,          /* ranks made different calls */
  TUTTI_ABORTED = 10,          /* this or another rank called tutti_comm_abort */
  TUTTI_VERSION_MISMATCH = 11, /* a peer runs another version of tutti */
  TUTTI_IN_PROGRESS = 12       /* non-blocking set-up, or a stream's work, is not finished */
} tutti_result_t;

/* A fixed English name of the code. Never NULL, for any value. */
TUTTI_API const char* tutti_error_string(tutti_result_t result) TUTTI_NOEXCEPT;

/* The text of the calling thread's last failed call; "" if no call has failed. Valid until the thread's next
 * call that fails, or the thread's end. TUTTI_IN_PROGRESS is no failure. */
TUTTI_API const char* tutti_last_error(void) TUTTI_NOEXCEPT;

/* *version = TUTTI_VERSION_CODE of the library that runs. TUTTI_INVALID_ARGUMENT: version is NULL. */
TUTTI_API tutti_result_t tutti_get_version(int* version) TUTTI_NOEXCEPT;

/* ---- types and operators ------------------------------------------------------------------- */

/* Floats of 8 and 16 bits: a rank reduces all operands that it has at once in float32 and rounds the result.
 * A partial result that goes on to another rank (rings, trees) is rounded to the type at each hop. */
typedef enum tutti_type_t TUTTI_ANY_INT {
  TUTTI_INT8 = 0,
  TUTTI_UINT8 = 1,
  TUTTI_INT32 = 2,
  TUTTI_UINT32 = 3,
  TUTTI_INT64 = 4,
  TUTTI_UINT64 = 5,
  TUTTI_FLOAT16 = 6, /* IEEE binary16; see above */
  TUTTI_FLOAT32 = 7,
  TUTTI_FLOAT64 = 8,
  TUTTI_BFLOAT16 = 9,     /* see above */
  TUTTI_FLOAT8_E4M3 = 10, /* OCP E4M3 (no infinity; overflow becomes NaN); see above */
  TUTTI_FLOAT8_E5M2 = 11, /* OCP E5M2; see above */
  TUTTI_INT16 = 12,
  TUTTI_UINT16 = 13,
  TUTTI_BOOL = 14, /* one byte, 0 or 1; sum and max mean or, prod and min mean and */
  TUTTI_TYPE_COUNT = 15
} tutti_type_t;

typedef enum tutti_op_t TUTTI_ANY_INT {
  TUTTI_SUM = 0,
  TUTTI_PROD = 1,
  TUTTI_MAX = 2, /* a NaN among the operands gives NaN */
  TUTTI_MIN = 3,
  /* sum, then divided by the rank count. Integers: the sum wraps like TUTTI_SUM before it is divided (int8:
   * three ranks with 100 get 14); the quotient truncates toward zero. Not bool. */
  TUTTI_AVG = 4,
  TUTTI_BAND = 5, /* bitwise operators: integers only */
  TUTTI_BOR = 6,
  TUTTI_BXOR = 7,
  TUTTI_OP_COUNT = 8,
  /* tutti_op_create_premul_sum makes the values between */
  TUTTI_OP_LAST = 0x7fffffff
} tutti_op_t;

/* Bytes of one element; 0 for an unknown type. */
TUTTI_API size_t tutti_type_bytes(tutti_type_t type) TUTTI_NOEXCEPT;

/* ---- streams ------------------------------------------------------------------------------- */

typedef struct tutti_host_stream tutti_host_stream_t;

/* The stream that orders an operation. The functions below make the value. */
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
/* The call returns when the operation is complete on this rank. Also initialises variables, static ones too;
 * in C with -Wpedantic use TUTTI_BLOCKING_INIT for these. */
#ifdef __cplusplus
#define TUTTI_BLOCKING (tutti_stream_t{0u, 0u, nullptr})
#else
#define TUTTI_BLOCKING ((tutti_stream_t){0u, 0u, NULL})
#endif
#define TUTTI_BLOCKING_INIT \
  { 0u, 0u, NULL }
/* The call returns at once. A progress thread runs the operation after the stream's earlier operations. */
static inline tutti_stream_t tutti_stream_host(tutti_host_stream_t* stream) {
  return tutti_stream_make_(1u, stream);
}
/* A cudaStream_t of the rank's device; 0 is the null stream. TUTTI_UNSUPPORTED for ranks in host memory. The
 * call returns at once, and the operation runs after the stream's earlier work. An error found later puts the
 * communicator in error (tutti_comm_async_error), and the stream goes on.
 *
 * A stream in capture records the operation. Launch the graph any number of times while the communicator
 * lives, in the same order on all ranks, and not while another operation of the communicator is under way.
 *
 * Ranks that share a stream must make their calls in one group: otherwise the second call waits for the
 * first. */
static inline tutti_stream_t tutti_stream_cuda(void* stream) {
  return tutti_stream_make_(2u, stream);
}

/* On success the caller owns *stream until tutti_host_stream_destroy. */
TUTTI_API tutti_result_t tutti_host_stream_create(tutti_host_stream_t** stream) TUTTI_NOEXCEPT;
/* Blocks until all operations issued so far are complete. Returns the first error among them. */
TUTTI_API tutti_result_t tutti_host_stream_synchronize(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;
/* TUTTI_SUCCESS when idle, TUTTI_IN_PROGRESS when not, else the first error. Does not block. */
TUTTI_API tutti_result_t tutti_host_stream_query(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;
/* For tutti_host_stream_notify. */
typedef void (*tutti_host_stream_done_t)(void* context, tutti_result_t result, const char* text);
/* Calls done(context, result, text) once, when the operations issued on the stream so far are complete.
 * `result` is the result of the last of these operations (TUTTI_SUCCESS if there was none). `text` is its
 * sentence ("" for success), valid until `done` returns. A thread of tutti calls `done`, or the caller itself
 * when all is complete already. `done` should be short, because the communicator's next operation waits. It
 * may issue operations on host streams. It may not block on a stream or communicator of tutti. Synchronize
 * and destroy wait for `done` too. In a group, calls that are not issued yet do not count. Errors, after
 * which `done` is not called: TUTTI_INVALID_ARGUMENT (NULL), TUTTI_INVALID_USAGE, TUTTI_OUT_OF_MEMORY. */
TUTTI_API tutti_result_t tutti_host_stream_notify(tutti_host_stream_t* stream, tutti_host_stream_done_t done,
                                                  void* context) TUTTI_NOEXCEPT;
/* Synchronizes, then frees. The handle is dead even when the call fails. NULL is accepted. */
TUTTI_API tutti_result_t tutti_host_stream_destroy(tutti_host_stream_t* stream) TUTTI_NOEXCEPT;

/* ---- communicators ------------------------------------------------------------------------- */

typedef struct tutti_comm tutti_comm_t;

/* The name of a communicator to create. One rank makes the id and passes it to the other ranks by any means
 * (128 bytes, no pointers inside). The id holds a secret: every holder of the id may join. */
typedef struct tutti_unique_id_t {
  char bytes[128];
} tutti_unique_id_t;

/* `size` gives the version. A shorter struct, of an older header, gets the defaults for the missing fields. A
 * longer struct is accepted when its tail is zero. Start from TUTTI_CONFIG_INIT, or from zeros and the size:
 * a field that is 0 has its default. Environment variables (docs/configuration.md) override the defaults, and
 * fields set here override both. */
typedef struct tutti_config_t {
  size_t size;
  int device;                /* 0 (or -1): host memory. TUTTI_CUDA_DEVICE(n): CUDA device n of this process
                                (TUTTI_UNSUPPORTED without CUDA). Ranks may differ. Unless all ranks are on
                                devices of one host that reach each other, calls pass through host memory */
  int nonblocking;           /* 1: tutti_comm_create returns TUTTI_IN_PROGRESS; poll tutti_comm_async_error */
  int reproducible;          /* 1: same bits for any algorithm, placement, message size. Equal on all ranks */
  int threads;               /* threads that work on one long operation of this rank, 1..16; 0: default (1).
                                Equal on all ranks */
  uint64_t timeout_ms;       /* an operation's longest time without progress; 0: default (600,000) */
  uint64_t setup_timeout_ms; /* deadline of set-up; 0: default (120,000) */
  const char* algorithm;     /* used for every call that it supports ("ring"; tutti-plan --list); NULL:
                                TUTTI_ALGORITHM, or the library chooses. Copied. Equal on all ranks. An
                                unknown name is TUTTI_INVALID_ARGUMENT */
} tutti_config_t;

#ifdef __cplusplus
#define TUTTI_CONFIG_INIT                       \
  tutti_config_t {                              \
    sizeof(tutti_config_t), 0, 0, 0, 0, 0, 0, 0 \
  }
#else
#define TUTTI_CONFIG_INIT \
  { sizeof(tutti_config_t), 0, 0, 0, 0, 0, 0, 0 }
#endif
/* For config.device. A bare number other than 0 and -1 is TUTTI_INVALID_ARGUMENT. */
#define TUTTI_CUDA_DEVICE(number) (0x10000 + (number))

/* Fills *id. Does not block. This process then listens for the ranks that use the id: at a Unix socket for
 * ranks of this host, and at a TCP port for other ranks (environment: TUTTI_SOCKET_IFNAME, TUTTI_PORT_RANGE).
 * The process must live until all ranks have joined. Every holder of the id may join: keep the id secret.
 *
 * The sockets are closed when the ranks have joined. For an id that no rank uses, they stay open until the
 * process ends. If the bootstrap fails, the process keeps the reason for late ranks until all ranks have it,
 * or until the set-up deadline of the environment (TUTTI_SETUP_TIMEOUT_MS) has passed once more; at most the
 * reasons of the last 16 failed ids.
 *
 * A process may make ids and then fork the ranks. After a communicator, a stream or memory of tutti, calls of
 * forked children return TUTTI_INVALID_USAGE.
 *
 * If a setting in the environment of this process is wrong, the call still makes the id, and
 * tutti_comm_create reports the setting on every rank. */
TUTTI_API tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id) TUTTI_NOEXCEPT;

/* Passes the id from rank 0 to the other ranks. All ranks call: rank 0 gives *id, and the others receive *id.
 * Blocks until the id is there or `timeout_ms` (0: the set-up deadline) has passed.
 *
 * `where` is one of
 *
 * - "launcher": what the processes' launcher offers: the file of TUTTI_ID_FILE, as below, and for further
 *   calls files with -2, -3 and so on at the end of their names; PMI (one call for each process); PMIx; a
 *   socket, if there is one host; or the launcher's address (then set TUTTI_KEY). Without a launcher the
 *   process is a job of one rank. A rank's n-th call that succeeds belongs to every other rank's n-th.
 * - "tutti://HOST:PORT": rank 0 listens on HOST. TUTTI_KEY or TUTTI_KEY_FILE is the same on all ranks.
 * - "file:PATH": a file that all ranks reach, and that does not exist yet. Rank 0 removes the file with
 *   tutti_forget_file.
 *
 * If the bootstrap at an address fails, rank 0 stays in the call until all ranks know why: at most 5 s, and
 * not past the deadline.
 *
 * Errors: TUTTI_INVALID_ARGUMENT (where, rank, an id of rank 0 that is not from tutti_get_unique_id),
 * TUTTI_INVALID_USAGE (no launcher, no key, the file exists or belongs to an earlier run), TUTTI_TIMEOUT,
 * TUTTI_SYSTEM_ERROR, TUTTI_PEER_LOST. */
TUTTI_API tutti_result_t tutti_share_unique_id(tutti_unique_id_t* id, const char* where, int rank,
                                               int rank_count, uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* A key-value store of the caller, such as a framework's store. The functions return 0 on success. Only the
 * thread that shares the id calls them. The functions must not call tutti. */
typedef struct tutti_store_t {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits until the key is there, at most timeout_ms, and fills exactly `bytes` of value. */
  int (*get)(void* context, const char* key, void* value, size_t bytes, uint64_t timeout_ms);
} tutti_store_t;

/* As tutti_share_unique_id, through a store. Rank 0 sets `key`; use a key only once. Errors:
 * TUTTI_SYSTEM_ERROR (the store failed), TUTTI_MISMATCH (the key holds something else). */
TUTTI_API tutti_result_t tutti_share_unique_id_by_store(tutti_unique_id_t* id, const tutti_store_t* store,
                                                        const char* key, int rank,
                                                        uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* Removes the file of "file:PATH", or the files that "launcher" used. Call after all ranks have a
 * communicator. Does nothing on ranks other than 0, and where there is no file. */
TUTTI_API tutti_result_t tutti_forget_file(const char* where, int rank) TUTTI_NOEXCEPT;

/* The rank of this process in its job, from the environment of torchrun, Open MPI, MPICH, Slurm, PMIx or
 * Kubernetes. Without a launcher: rank 0 of 1. local_rank and local_count are -1 where the launcher does not
 * give them. Any pointer may be NULL. Errors: TUTTI_INVALID_USAGE names variables that contradict each other.
 */
TUTTI_API tutti_result_t tutti_launcher_context(int* rank, int* rank_count, int* local_rank,
                                                int* local_count) TUTTI_NOEXCEPT;

/* Joins a communicator of rank_count ranks (1 to 4096) as `rank`. Blocks until all ranks have joined or the
 * set-up deadline has passed. config may be NULL. On success the caller owns *comm until tutti_comm_destroy
 * or tutti_comm_abort. On failure *comm is NULL. Several ranks may be threads of one process. One thread that
 * creates several ranks uses config.nonblocking or tutti_comm_create_all.
 *
 * If one rank fails, also by a wrong setting in its environment, all ranks return its error and text, late
 * ranks too. For the late ranks, the process that made the id stays in the failing call until all ranks know:
 * at most 5 s, and not past the deadline. Other processes return at once. (With config.nonblocking the caller
 * does not wait, and abort and destroy end the wait.)
 *
 * Errors: TUTTI_INVALID_ARGUMENT, TUTTI_TIMEOUT (names the absent ranks), TUTTI_PEER_LOST,
 * TUTTI_VERSION_MISMATCH, TUTTI_MISMATCH (ranks have different settings), TUTTI_ABORTED, TUTTI_INVALID_USAGE
 * (forked), TUTTI_OUT_OF_MEMORY, TUTTI_SYSTEM_ERROR, TUTTI_UNSUPPORTED. */
TUTTI_API tutti_result_t tutti_comm_create(tutti_comm_t** comm, int rank_count, tutti_unique_id_t id,
                                           int rank, const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Creates all ranks in this process, with one config, so all on config.device. Otherwise as
 * tutti_comm_create. On failure every comms[r] is NULL. */
TUTTI_API tutti_result_t tutti_comm_create_all(tutti_comm_t** comms, int rank_count,
                                               const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Ranks of equal color form a new communicator, ordered by key, then by rank. Collective on `comm`; blocks;
 * not inside a group. Each rank needs a thread of its own in this call. color: at least 0, or TUTTI_NO_COLOR:
 * such a rank takes part but gets NULL. config NULL: the parent's, but blocking. The caller owns *new_comm.
 * Errors: as tutti_comm_create and as a collective. */
#define TUTTI_NO_COLOR (-1)
TUTTI_API tutti_result_t tutti_comm_split(tutti_comm_t* comm, int color, int key, tutti_comm_t** new_comm,
                                          const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Makes a new communicator of the ranks of `comm` that still live, in the order of their ranks. All living
 * ranks call, whether or not `comm` has failed. Ranks in exclude[0..exclude_count) live but are left out:
 * they do not call, and all callers exclude the same ranks. Ranks that have finalized or whose process has
 * ended (_exit included) are left out automatically.
 *
 * Blocks until all ranks have joined, at most until the set-up deadline, which counts from the end of this
 * rank's own operations. A rank lost before all are ready is left out. A rank lost later is a lost member
 * of the new communicator. Not inside a group. All living ranks get the same communicator or an error. After
 * an error all ranks may call again.
 *
 * flags: TUTTI_SHRINK_ABORT first ends the operations of `comm` on all ranks, as tutti_comm_abort does.
 * Without the flag the call waits for them. The caller still owns `comm`: destroy or abort `comm`. config
 * NULL: the parent's.
 *
 * Errors: TUTTI_TIMEOUT (names the missing ranks), TUTTI_MISMATCH (the ranks exclude different ranks),
 * TUTTI_INVALID_USAGE (other ranks exclude this rank), TUTTI_PEER_LOST (the others gave this rank up while it
 * was stopped or cut off; the rank cannot come back), TUTTI_UNSUPPORTED (nonblocking), TUTTI_SYSTEM_ERROR
 * (also: a rank had agreed and then gave up). */
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tutti_result_t tutti_comm_shrink(tutti_comm_t* comm, const int* exclude, int exclude_count,
                                           int flags, tutti_comm_t** new_comm,
                                           const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Lets new ranks join. Makes a new communicator of rank_count ranks, in which the ranks of `comm` keep their
 * numbers. Collective on `comm` (rank: -1 or the rank's own number). Each new rank calls with comm NULL and
 * its own number, from the old count on. `id` comes from tutti_get_unique_id. All new ranks and at least one
 * rank of `comm` pass the id; the other ranks may pass NULL. config NULL: the parent's, or defaults. Blocks
 * as tutti_comm_create. Not inside a group.
 *
 * If a rank dies meanwhile, all other ranks get an error that names the dead rank, new ranks too: at once if
 * the dead rank had joined, else at the set-up deadline. If the dead rank was new, `comm` goes on. Either all
 * living ranks of `comm` get the new communicator or none (blocking calls). Errors: as tutti_comm_create and
 * as a collective. */
TUTTI_API tutti_result_t tutti_comm_grow(tutti_comm_t* comm, int rank_count, const tutti_unique_id_t* id,
                                         int rank, tutti_comm_t** new_comm,
                                         const tutti_config_t* config) TUTTI_NOEXCEPT;

/* Waits until all operations of this rank are complete. Afterwards collectives, send, recv, split, register,
 * mem_alloc, set_timeout and op_create fail with TUTTI_INVALID_USAGE. Still legal are rank, count, explain,
 * async_error, deregister, op_destroy, destroy and abort. Returns the first error of this rank's operations
 * on streams, also if a stream has already reported the error; the communicator is finalized all the same.
 * Errors of blocking calls were returned by these calls. TUTTI_MISMATCH: a peer has sent a message that no
 * call has received, or peers have made other collectives. */
TUTTI_API tutti_result_t tutti_comm_finalize(tutti_comm_t* comm) TUTTI_NOEXCEPT;
/* Finalizes if needed, then frees. If the call finalizes, the call returns finalize's error. The handle is
 * dead even when the call fails. Not collective: peers need not call at the same time. NULL is accepted. */
TUTTI_API tutti_result_t tutti_comm_destroy(tutti_comm_t* comm) TUTTI_NOEXCEPT;
/* Ends every wait on this communicator, on all ranks, with TUTTI_ABORTED. Then frees this rank's part.
 * Another thread than the waiting thread may call. The waiting thread's call returns before the memory is
 * freed. NULL is accepted. */
TUTTI_API tutti_result_t tutti_comm_abort(tutti_comm_t* comm) TUTTI_NOEXCEPT;

/* *error = TUTTI_SUCCESS, TUTTI_IN_PROGRESS (set-up), or the error that the communicator is in, also if a
 * peer reported the error. Does not block. Any thread may call. */
TUTTI_API tutti_result_t tutti_comm_async_error(tutti_comm_t* comm, tutti_result_t* error) TUTTI_NOEXCEPT;
/* These do not block, and are legal until the communicator is destroyed. */
TUTTI_API tutti_result_t tutti_comm_rank(const tutti_comm_t* comm, int* rank) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_comm_count(const tutti_comm_t* comm, int* rank_count) TUTTI_NOEXCEPT;

/* Sets the deadline of operations issued on `comm` from now on: blocking calls, operations on streams and in
 * groups. When an operation has made no progress for timeout_ms, every rank gets TUTTI_TIMEOUT. 0: the
 * config's deadline again. In a group a communicator's sends and receives are one operation with the longest
 * of their deadlines. Local: ranks may set different deadlines, and the first that passes ends the operation
 * on all ranks. Communicators made from `comm` begin with the config's deadline. Errors:
 * TUTTI_INVALID_ARGUMENT (more than a year). */
TUTTI_API tutti_result_t tutti_comm_set_timeout(tutti_comm_t* comm, uint64_t timeout_ms) TUTTI_NOEXCEPT;

/* One line about the last operation of this rank: collective, bytes, algorithm, why, predicted time. Writes
 * at most `bytes` bytes, with the final 0. Waits for operations issued on host streams. Call from the thread
 * that uses the communicator. */
TUTTI_API tutti_result_t tutti_comm_explain(const tutti_comm_t* comm, char* text,
                                            size_t bytes) TUTTI_NOEXCEPT;

/* Makes a sum that first multiplies this rank's operand by *scalar (of `type`). A scalar in host memory is
 * read at the call. A scalar in memory of the rank's CUDA device is read by each operation when the operation
 * runs: keep that scalar until the op is destroyed. The op is legal for `type` and `comm` only, until
 * tutti_op_destroy. Local. Not for bool. */
TUTTI_API tutti_result_t tutti_op_create_premul_sum(tutti_op_t* op, const void* scalar, tutti_type_t type,
                                                    tutti_comm_t* comm) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_op_destroy(tutti_op_t op, tutti_comm_t* comm) TUTTI_NOEXCEPT;

/* ---- memory -------------------------------------------------------------------------------- */

/* Allocates host memory of the symmetric heap, 4096-byte aligned and zeroed. Peers on this host read and
 * write this memory without a copy. Local, not collective. bytes 0 gives NULL. */
TUTTI_API tutti_result_t tutti_mem_alloc(void** pointer, size_t bytes) TUTTI_NOEXCEPT;
/* Allocates zeroed memory for buffers of `comm`. A rank on a device gets memory of the device (whole pieces
 * of 2 MiB), which tutti_memory_register accepts. A rank in host memory gets memory of the symmetric heap.
 * The memory may outlive `comm`. Local, not collective. bytes 0 gives NULL. Errors: TUTTI_INVALID_ARGUMENT,
 * TUTTI_INVALID_USAGE, TUTTI_OUT_OF_MEMORY, TUTTI_SYSTEM_ERROR. */
TUTTI_API tutti_result_t tutti_comm_mem_alloc(tutti_comm_t* comm, void** pointer,
                                              size_t bytes) TUTTI_NOEXCEPT;
/* Frees memory of tutti_mem_alloc or tutti_comm_mem_alloc. No operation, kernel or copy may use it still:
 * unlike cudaFree this does not wait for the device. It may not be registered. NULL is accepted. */
TUTTI_API tutti_result_t tutti_mem_free(void* pointer) TUTTI_NOEXCEPT;

/* Registered memory: peers reach it without a copy, on devices directly, in host memory by RDMA. Each rank
 * registers its own buffer. */
typedef struct tutti_registered_memory tutti_registered_memory_t;

/* Registers [buffer, buffer + bytes) of the rank's CUDA device. Ranks of other processes and devices then
 * load from this memory and store to it. A buffer may be any part of registered memory. Other buffers are
 * copied through memory of the library, which slows only their rank. Results are the same.
 *
 * Ranks in host memory: the call is local. It locks the memory for the RDMA devices that join this rank to
 * other hosts, so that long messages need no copy. Without such devices *memory is NULL.
 *
 * Collective on devices: all ranks call, in the order of their collectives, each with its own memory. Blocks.
 * Not inside a group. Each rank needs a thread of its own in this call, as in tutti_comm_split.
 *
 * If nothing was registered, *memory is NULL on all ranks. This is no error: calls go on as before. The cases
 * are: calls that pass through host memory; the 512th registration of a communicator; and a rank whose memory
 * the others cannot map. Memory can be mapped if it is one piece of cudaMalloc, tutti_comm_mem_alloc or
 * ncclMemAlloc, or of cuMemCreate that may be shared by file, and overlaps no other registered memory. The
 * rank whose memory cannot be mapped says why on standard error.
 *
 * From 4 ranks on, if a switch gives the devices multicast memory, all_reduce, reduce, broadcast, all_gather
 * and reduce_scatter pass through multicast memory, with and without registration.
 *
 * On success the caller owns *memory until tutti_memory_deregister or the end of the communicator. Do not
 * free the buffer before tutti_memory_deregister has succeeded or the communicator has ended on all ranks.
 * Errors: TUTTI_INVALID_ARGUMENT (NULL, bytes 0, memory that the device cannot reach), TUTTI_INVALID_USAGE,
 * TUTTI_OUT_OF_MEMORY (the limit of locked memory), and as a collective. */
TUTTI_API tutti_result_t tutti_memory_register(tutti_comm_t* comm, void* buffer, size_t bytes,
                                               tutti_registered_memory_t** memory) TUTTI_NOEXCEPT;
/* Ends a registration. Waits until the rank's operations have ended and all ranks have closed the memory.
 * Then the buffer may be freed. The call does not wait for launches of graphs that were captured with the
 * memory: these launches must have ended on all ranks, and no more may follow. Collective as
 * tutti_memory_register; all ranks deregister in the same order. Local on a finalized communicator. On a
 * communicator in error the call does not wait for missing ranks and returns the error: then keep the buffer
 * until the other ranks have destroyed their communicators. The handle is dead even when the call fails. NULL
 * is accepted, and local. Errors: TUTTI_INVALID_ARGUMENT (not registered memory of this communicator),
 * TUTTI_INVALID_USAGE, TUTTI_TIMEOUT (a rank is missing), TUTTI_PEER_LOST, TUTTI_ABORTED. */
TUTTI_API tutti_result_t tutti_memory_deregister(tutti_comm_t* comm,
                                                 tutti_registered_memory_t* memory) TUTTI_NOEXCEPT;

/* ---- collectives ---------------------------------------------------------------------------
 * P is the rank count. `send` and `recv` may be equal where "in place" says so, and must not overlap
 * otherwise. Pointers of empty buffers may be NULL. With TUTTI_BLOCKING a call may block up to the deadline.
 * Common errors: TUTTI_INVALID_ARGUMENT (NULL pointer, count whose bytes overflow, unknown type or operator,
 * root outside [0, P), overlap), TUTTI_INVALID_USAGE (destroyed, finalized, forked), TUTTI_MISMATCH,
 * TUTTI_PEER_LOST, TUTTI_TIMEOUT, TUTTI_ABORTED. A communicator in error returns its error from every later
 * collective, send and recv. */

/* recv[i] = op over all ranks' send[i]. send, recv: [count]. In place: send == recv. */
TUTTI_API tutti_result_t tutti_all_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_op_t op, tutti_comm_t* comm,
                                          tutti_stream_t stream) TUTTI_NOEXCEPT;
/* As all_reduce, with the result at root only. Other ranks' recv is ignored. */
TUTTI_API tutti_result_t tutti_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                      tutti_op_t op, int root, tutti_comm_t* comm,
                                      tutti_stream_t stream) TUTTI_NOEXCEPT;
/* Every recv = root's send, [count]. Other ranks' send is ignored. In place: send == recv at root. */
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
/* Returns when every rank has called. */
TUTTI_API tutti_result_t tutti_barrier(tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;

/* Variable counts. counts and displacements: [P], in elements. counts must be equal on all ranks for the
 * first two calls. displacements say where the blocks lie in this rank's own buffer, and may differ between
 * ranks. NULL: the blocks follow one another.
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

/* Point to point. A send meets the peer's recv of the same count, type and tag. tag: 0..65535. Outside a
 * group a pair's messages arrive in the order of the sends, and a large send may wait for its recv. In a
 * group messages travel in order of tag, then of call. So if both sides use a group, they may list different
 * tags in different orders. Messages of one tag do not overtake each other. A rank sends to itself only
 * inside a group that holds the matching recv. */
TUTTI_API tutti_result_t tutti_send(const void* send, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_recv(void* recv, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) TUTTI_NOEXCEPT;
/* As tutti_recv from the rank whose message comes first, and *source = that rank. The messages of one rank
 * keep their order. If several ranks have sent, they take turns. The call receives the first message that
 * comes, so all ranks that may send use the same count, type and tag: another message is TUTTI_MISMATCH.
 * Blocks. On failure *source is unchanged. Errors, besides those of tutti_recv: TUTTI_INVALID_ARGUMENT
 * (source is NULL), TUTTI_INVALID_USAGE (in a group; a communicator of one rank), TUTTI_UNSUPPORTED (a rank
 * on a CUDA device), TUTTI_PEER_LOST (also: all other ranks have left). */
TUTTI_API tutti_result_t tutti_recv_any(void* recv, size_t count, tutti_type_t type, int tag, int* source,
                                        tutti_comm_t* comm) TUTTI_NOEXCEPT;

/* A group: the calls of this thread between start and end, on any communicators, are issued together at the
 * outermost end. Sends and receives then progress at once, and one thread may drive several ranks. Groups
 * nest.
 *
 * An argument error of a collective, send or recv inside is returned by that call and again by the end, and
 * nothing of the group is issued. Calls that cannot be in a group fail and do not spoil the group.
 *
 * On streams the calls of one communicator's rank are one operation, whichever streams they name. The
 * operation begins when all these streams have reached the operation, and the streams go on when the
 * operation has ended. (Streams in capture must all be in one capture.) Calls of other communicators may run
 * beside it. A rank's calls in a group are all blocking, all on host streams or all on CUDA streams;
 * otherwise the end returns TUTTI_INVALID_USAGE. */
TUTTI_API tutti_result_t tutti_group_start(void) TUTTI_NOEXCEPT;
TUTTI_API tutti_result_t tutti_group_end(void) TUTTI_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_TUTTI_H_ */
