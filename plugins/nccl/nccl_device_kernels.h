// What kernels name of NCCL's device API, so that files with such kernels compile. nccl_device.h includes
// this file under nvcc.
//
// Cooperative groups, teams and symmetric pointers are arithmetic and work. Everything that would reach
// another rank stops the kernel by __trap(). Such a kernel needs an ncclDevComm or a window's device side,
// and tutti gives out neither, so a program that checks its results never launches one.
#ifndef NCCL_DEVICE_KERNELS_H_
#define NCCL_DEVICE_KERNELS_H_

#include <cuda/atomic>

#define TUTTI_NCCL_BOTH __host__ __device__ __forceinline__

// Calls of many shapes, which only refuse: any arguments will do.
#define TUTTI_NCCL_REFUSED(name)                \
  template <class T = void, class... Arguments> \
  NCCL_DEVICE_INLINE void name(Arguments...) {  \
    __trap();                                   \
  }
#define TUTTI_NCCL_REFUSED_RESULT(type, name, ...) \
  NCCL_DEVICE_INLINE type name(__VA_ARGS__) {      \
    __trap();                                      \
    return {};                                     \
  }

// ---- cooperative groups ------------------------------------------------------------------------------

/// An aligned power of two of threads of a warp.
template <int kThreads>
struct ncclCoopTile {
  static_assert(kThreads > 0 && kThreads <= 32 && (kThreads & (kThreads - 1)) == 0,
                "1 to 32, a power of two");
  NCCL_DEVICE_INLINE int thread_rank() const { return static_cast<int>(threadIdx.x) % kThreads; }
  NCCL_DEVICE_INLINE constexpr int size() const { return kThreads; }
  NCCL_DEVICE_INLINE constexpr int num_threads() const { return kThreads; }
  NCCL_DEVICE_INLINE uint32_t laneMask() const {
    return (~0u >> (32 - kThreads)) << (threadIdx.x % 32 & static_cast<unsigned>(-kThreads));
  }
  NCCL_DEVICE_INLINE void sync() {
    if (kThreads > 1) __syncwarp(laneMask());
  }
};
using ncclCoopThread = ncclCoopTile<1>;
using ncclCoopWarp = ncclCoopTile<32>;

/// Some lanes of a warp.
struct ncclCoopLanes {
  uint32_t lmask;
  NCCL_DEVICE_INLINE constexpr ncclCoopLanes(uint32_t mask = ~0u) : lmask(mask) {}
  NCCL_DEVICE_INLINE int thread_rank() const { return __popc(lmask & ((1u << threadIdx.x % 32) - 1)); }
  NCCL_DEVICE_INLINE int size() const { return __popc(lmask); }
  NCCL_DEVICE_INLINE int num_threads() const { return __popc(lmask); }
  NCCL_DEVICE_INLINE void sync() { __syncwarp(lmask); }
};

/// Consecutive warps. The caller gives an id of 0 to 15, and with it a hardware barrier.
struct ncclCoopWarpSpan {
  uint32_t warp0 : 8, nWarps : 8, id : 8;
  NCCL_DEVICE_INLINE constexpr ncclCoopWarpSpan(int first, int count, int number)
      : warp0(first), nWarps(count), id(number) {}
  NCCL_DEVICE_INLINE int thread_rank() const { return static_cast<int>(threadIdx.x - 32 * warp0); }
  NCCL_DEVICE_INLINE int size() const { return 32 * nWarps; }
  NCCL_DEVICE_INLINE int num_threads() const { return 32 * nWarps; }
  NCCL_DEVICE_INLINE void sync() {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(1 + id), "r"(32 * nWarps) : "memory");
  }
};

/// All threads of a block.
struct ncclCoopCta {
  NCCL_DEVICE_INLINE int thread_rank() const { return static_cast<int>(threadIdx.x); }
  NCCL_DEVICE_INLINE int size() const { return static_cast<int>(blockDim.x); }
  NCCL_DEVICE_INLINE int num_threads() const { return static_cast<int>(blockDim.x); }
  NCCL_DEVICE_INLINE void sync() { __syncthreads(); }
};

/// Any of the groups above. Only for calls that refuse.
struct ncclCoopAny {
  ncclCoopAny() = default;
  template <class Coop>
  NCCL_DEVICE_INLINE ncclCoopAny(Coop coop) : size_(coop.size()), rank_(coop.thread_rank()) {}
  NCCL_DEVICE_INLINE int thread_rank() const { return rank_; }
  NCCL_DEVICE_INLINE int size() const { return size_; }
  NCCL_DEVICE_INLINE int num_threads() const { return size_; }
  NCCL_DEVICE_INLINE void sync() { __trap(); }

 private:
  int size_;
  int rank_;
};

template <class Coop>
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(Coop) {
  return ~0u;
}
template <int kThreads>
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopTile<kThreads> coop) {
  return coop.laneMask();
}
NCCL_DEVICE_INLINE uint32_t ncclCoopGetLaneMask(ncclCoopLanes coop) {
  return coop.lmask;
}
template <class Coop>
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(Coop) {
  return false;
}
template <int kThreads>
NCCL_DEVICE_INLINE constexpr bool ncclCoopIsThread(ncclCoopTile<kThreads>) {
  return kThreads == 1;
}
template <class Coop>
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(Coop) {
  return false;
}
template <int kThreads>
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopTile<kThreads>) {
  return true;
}
NCCL_DEVICE_INLINE constexpr bool ncclCoopWithinWarp(ncclCoopLanes) {
  return true;
}
NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced() {
  return ncclCoopLanes{__activemask()};
}
template <class Coop>
NCCL_DEVICE_INLINE ncclCoopWarp ncclCoopCoalesced(Coop) {
  return {};
}
template <int kThreads>
NCCL_DEVICE_INLINE ncclCoopTile<kThreads> ncclCoopCoalesced(ncclCoopTile<kThreads> coop) {
  return coop;
}
NCCL_DEVICE_INLINE ncclCoopLanes ncclCoopCoalesced(ncclCoopLanes coop) {
  return coop;
}
template <class Coop, class T>
NCCL_DEVICE_INLINE T ncclCoopBcast(Coop, T value, int, bool = true) {
  __trap();
  return value;
}

// ---- teams, windows, symmetric pointers --------------------------------------------------------------

struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};
struct ncclTeamTagRail {};

NCCL_DEVICE_INLINE ncclTeam ncclTeamWorld(const ncclDevComm& comm) {
  return {comm.nRanks, comm.rank, 1};
}
NCCL_DEVICE_INLINE ncclTeam ncclTeamLsa(const ncclDevComm& comm) {
  return {comm.lsaSize, comm.lsaRank, 1};
}
NCCL_DEVICE_INLINE ncclTeam ncclTeamRail(const ncclDevComm& comm) {
  return ncclTeamOuterFactor(ncclTeamWorld(comm), comm.lsaSize);
}
NCCL_DEVICE_INLINE ncclTeam ncclTeamCft(const ncclDevComm& comm, ncclCftTeamMode_t = NCCL_CFT_TEAM_FLAT) {
  return {comm.cftSize, comm.cftRank, 1};
}
NCCL_DEVICE_INLINE ncclTeam ncclTeamCftMultimem(const ncclDevComm& comm) {
  return {comm.cftMultimemSize, comm.cftMultimemRank, 1};
}
NCCL_DEVICE_INLINE int ncclTeamRankToWorld(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.rank + (rank - team.rank) * team.stride;
}
NCCL_DEVICE_INLINE int ncclTeamRankToLsa(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.lsaRank + (rank - team.rank) * team.stride;
}

TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetLocalPointer, ncclWindow_t, size_t)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetLsaPointer, ncclWindow_t, size_t, int)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetPeerPointer, ncclWindow_t, size_t, int)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetPeerPointer, ncclWindow_t, size_t, ncclTeam, int)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetMultimemPointer, ncclWindow_t, size_t, ncclMultimemHandle)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetLsaMultimemPointer, ncclWindow_t, size_t, const ncclDevComm&)
TUTTI_NCCL_REFUSED(ncclGetCftLeInfo)
TUTTI_NCCL_REFUSED(ncclGetPeerLeInfo)
TUTTI_NCCL_REFUSED(ncclGetMultimemLeInfo)
TUTTI_NCCL_REFUSED(ncclGetResourceBufferCftLeInfo)
TUTTI_NCCL_REFUSED(ncclGetResourceBufferPeerLeInfo)
TUTTI_NCCL_REFUSED(ncclGetResourceBufferMultimemLeInfo)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetResourceBufferLocalPointer, const ncclDevComm&, ncclDevResourceHandle)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetResourceBufferLsaPointer, const ncclDevComm&, ncclDevResourceHandle,
                          int)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetResourceBufferPeerPointer, const ncclDevComm&, ncclDevResourceHandle,
                          ncclTeam, int)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetResourceBufferMultimemPointer, const ncclDevComm&,
                          ncclDevResourceHandle, ncclMultimemHandle)
TUTTI_NCCL_REFUSED_RESULT(void*, ncclGetResourceBufferLsaMultimemPointer, const ncclDevComm&,
                          ncclDevResourceHandle)

/// A place in a window, the same on every rank.
template <class T>
struct ncclSymPtr {
  using ElementType = T;
  ncclWindow_t window;
  size_t offset;

  TUTTI_NCCL_BOTH constexpr ncclSymPtr(ncclWindow_t of = nullptr, size_t bytes = 0)
      : window(of), offset(bytes) {}
  template <class U>
  TUTTI_NCCL_BOTH operator ncclSymPtr<U>() const {
    return {window, offset};
  }
  template <class Count>
  TUTTI_NCCL_BOTH ncclSymPtr& operator+=(Count elements) {
    offset += static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
  template <class Count>
  TUTTI_NCCL_BOTH ncclSymPtr& operator-=(Count elements) {
    offset -= static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
  NCCL_DEVICE_INLINE T* localPtr() const { return static_cast<T*>(ncclGetLocalPointer(window, offset)); }
  NCCL_DEVICE_INLINE T* lsaPtr(int peer) const {
    return static_cast<T*>(ncclGetLsaPointer(window, offset, peer));
  }
  NCCL_DEVICE_INLINE T* peerPtr(int peer) const {
    return static_cast<T*>(ncclGetPeerPointer(window, offset, peer));
  }
  NCCL_DEVICE_INLINE T* peerPtr(ncclTeam team, int peer) const {
    return static_cast<T*>(ncclGetPeerPointer(window, offset, team, peer));
  }
  NCCL_DEVICE_INLINE T* multimemPtr(ncclMultimemHandle handle) const {
    return static_cast<T*>(ncclGetMultimemPointer(window, offset, handle));
  }
  NCCL_DEVICE_INLINE T* lsaMultimemPtr(const ncclDevComm& comm) const {
    return static_cast<T*>(ncclGetLsaMultimemPointer(window, offset, comm));
  }
};
template <class T, class Count>
TUTTI_NCCL_BOTH ncclSymPtr<T> operator+(ncclSymPtr<T> pointer, Count elements) {
  return pointer += elements;
}
template <class T, class Count>
TUTTI_NCCL_BOTH ncclSymPtr<T> operator-(ncclSymPtr<T> pointer, Count elements) {
  return pointer -= elements;
}
template <class T>
TUTTI_NCCL_BOTH ptrdiff_t operator-(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return (static_cast<ptrdiff_t>(a.offset) - static_cast<ptrdiff_t>(b.offset)) /
         static_cast<ptrdiff_t>(sizeof(T));
}
template <class T>
TUTTI_NCCL_BOTH bool operator==(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return a.window == b.window && a.offset == b.offset;
}
template <class T>
TUTTI_NCCL_BOTH bool operator!=(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return !(a == b);
}
TUTTI_NCCL_REFUSED_RESULT(ncclSymPtr<char>, ncclGetResourceBuffer, const ncclDevComm&, ncclDevResourceHandle)

// ---- the network from kernels (GIN) ------------------------------------------------------------------

enum ncclGinResourceSharingMode : uint8_t {
  NCCL_GIN_RESOURCE_SHARING_GPU = 0,
  NCCL_GIN_RESOURCE_SHARING_CTA = 1,
  NCCL_GIN_RESOURCE_SHARING_THREAD = 2,
};
enum ncclGinSignalType {
  NCCL_GIN_SIGNAL_TYPE_NONE,
  NCCL_GIN_SIGNAL_TYPE_VA,
  NCCL_GIN_SIGNAL_TYPE_INDEXED,
};
/// The enumerators are in the global name space too, as in NCCL.
enum ncclGinFenceLevel : uint32_t { None = 0, Put = 1, Get = 2, Relaxed = None };
TUTTI_NCCL_BOTH constexpr ncclGinFenceLevel operator|(ncclGinFenceLevel a, ncclGinFenceLevel b) {
  return static_cast<ncclGinFenceLevel>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
TUTTI_NCCL_BOTH constexpr ncclGinFenceLevel operator&(ncclGinFenceLevel a, ncclGinFenceLevel b) {
  return static_cast<ncclGinFenceLevel>(static_cast<uint32_t>(a) & static_cast<uint32_t>(b));
}

struct ncclGinDescriptorSmem {
  alignas(64) char space[128];
};
struct ncclGin_DescriptorSmem {
  ncclGinDescriptorSmem* descriptor;
};
struct ncclGin_None {};
struct ncclGin_SegmentDevice {};
struct ncclGin_SegmentMixed {};
struct ncclGin_SegmentHostNuma {};
#define TUTTI_NCCL_SIGNALS(strength)       \
  struct ncclGin_##strength##VASignalInc { \
    ncclWindow_t signalWindow;             \
    size_t signalOffset;                   \
  };                                       \
  struct ncclGin_##strength##VASignalAdd { \
    ncclWindow_t signalWindow;             \
    size_t signalOffset;                   \
    uint64_t value;                        \
  };                                       \
  struct ncclGin_##strength##SignalInc {   \
    ncclGinSignal_t signal;                \
  };                                       \
  struct ncclGin_##strength##SignalAdd {   \
    ncclGinSignal_t signal;                \
    uint64_t value;                        \
  };
TUTTI_NCCL_SIGNALS()
TUTTI_NCCL_SIGNALS(Strong)
TUTTI_NCCL_SIGNALS(Weak)
#undef TUTTI_NCCL_SIGNALS
struct ncclGin_CounterInc {
  ncclGinCounter_t counter;
};
struct ncclGin_WeakCounterInc {
  ncclGinCounter_t counter;
};

/// Reads return 0, waits return ncclInvalidUsage, if the compiler lets a kernel get that far.
template <unsigned kBackends>
struct ncclGin_BackendMask {
  const ncclDevComm& comm;
  uint32_t contextId;
  ncclGinResourceSharingMode resourceSharingMode;

  NCCL_DEVICE_INLINE ncclGin_BackendMask(const ncclDevComm& of, int context,
                                         ncclGinResourceSharingMode sharing = NCCL_GIN_RESOURCE_SHARING_GPU)
      : comm(of), contextId(static_cast<uint32_t>(context)), resourceSharingMode(sharing) {}

#define TUTTI_NCCL_REFUSED_MEMBER(name)              \
  template <class... Arguments>                      \
  NCCL_DEVICE_INLINE void name(Arguments...) const { \
    __trap();                                        \
  }
#define TUTTI_NCCL_REFUSED_WAIT(name)                        \
  template <class... Arguments>                              \
  NCCL_DEVICE_INLINE ncclResult_t name(Arguments...) const { \
    __trap();                                                \
    return ncclInvalidUsage;                                 \
  }
#define TUTTI_NCCL_REFUSED_READ(type, name)          \
  template <class... Arguments>                      \
  NCCL_DEVICE_INLINE type name(Arguments...) const { \
    __trap();                                        \
    return {};                                       \
  }
  TUTTI_NCCL_REFUSED_MEMBER(put)
  TUTTI_NCCL_REFUSED_MEMBER(putValue)
  TUTTI_NCCL_REFUSED_MEMBER(get)
  TUTTI_NCCL_REFUSED_MEMBER(signal)
  TUTTI_NCCL_REFUSED_MEMBER(flushAsync)
  TUTTI_NCCL_REFUSED_WAIT(flush)
  TUTTI_NCCL_REFUSED_WAIT(wait)
  TUTTI_NCCL_REFUSED_WAIT(waitCounter)
  TUTTI_NCCL_REFUSED_WAIT(waitSignal)
  TUTTI_NCCL_REFUSED_MEMBER(waitSignalMeetShadow)
  TUTTI_NCCL_REFUSED_MEMBER(waitSignalFollowShadow)
  TUTTI_NCCL_REFUSED_READ(uint64_t, readCounter)
  TUTTI_NCCL_REFUSED_READ(uint64_t, readSignal)
  TUTTI_NCCL_REFUSED_READ(uint64_t*, getSignalShadowPtr)
  TUTTI_NCCL_REFUSED_MEMBER(increaseSignalShadow)
  TUTTI_NCCL_REFUSED_MEMBER(resetCounter)
  TUTTI_NCCL_REFUSED_MEMBER(resetSignal)
};
template <ncclNetDeviceType kBackend>
using ncclGin_BackendOne = ncclGin_BackendMask<(1u << static_cast<unsigned>(kBackend))>;
using ncclGin = ncclGin_BackendMask<NCCL_GIN_BACKEND_MASK_ALL>;

struct ncclGin_C {
  const ncclDevComm& comm;
  uint32_t contextId;
  ncclGinResourceSharingMode resourceSharingMode;
  NCCL_DEVICE_INLINE ncclGin_C(const ncclDevComm& of, unsigned, int context,
                               ncclGinResourceSharingMode sharing = NCCL_GIN_RESOURCE_SHARING_GPU)
      : comm(of), contextId(static_cast<uint32_t>(context)), resourceSharingMode(sharing) {}
};
TUTTI_NCCL_REFUSED(ncclGin_C_init)
TUTTI_NCCL_REFUSED(ncclGin_C_initWithResourceSharingMode)
TUTTI_NCCL_REFUSED(ncclGinPut)
TUTTI_NCCL_REFUSED(ncclGinPut_v2)
TUTTI_NCCL_REFUSED(ncclGinPut_v3)
TUTTI_NCCL_REFUSED(ncclGinPutValue)
TUTTI_NCCL_REFUSED(ncclGinPutValue_v2)
TUTTI_NCCL_REFUSED(ncclGinPutValue_v3)
TUTTI_NCCL_REFUSED(ncclGinGet)
TUTTI_NCCL_REFUSED(ncclGinGet_v2)
TUTTI_NCCL_REFUSED(ncclGinSignal)
TUTTI_NCCL_REFUSED(ncclGinSignal_v2)
TUTTI_NCCL_REFUSED(ncclGinSignal_v3)
TUTTI_NCCL_REFUSED(ncclGinFlush)
TUTTI_NCCL_REFUSED(ncclGinFlush_v2)
TUTTI_NCCL_REFUSED(ncclGinFlushAsync)
TUTTI_NCCL_REFUSED(ncclGinWait)
TUTTI_NCCL_REFUSED(ncclGinWaitCounter)
TUTTI_NCCL_REFUSED(ncclGinResetCounter)
TUTTI_NCCL_REFUSED(ncclGinIncreaseSignalShadow)
TUTTI_NCCL_REFUSED(ncclGinWaitSignal)
TUTTI_NCCL_REFUSED(ncclGinWaitSignalVA)
TUTTI_NCCL_REFUSED(ncclGinWaitSignalMeetShadow)
TUTTI_NCCL_REFUSED(ncclGinWaitSignalFollowShadow)
TUTTI_NCCL_REFUSED(ncclGinResetSignal)
TUTTI_NCCL_REFUSED(ncclGinResetSignalVA)
#define TUTTI_NCCL_REFUSED_GIN(type, name)     \
  template <class... Arguments>                \
  NCCL_DEVICE_INLINE type name(Arguments...) { \
    __trap();                                  \
    return {};                                 \
  }
TUTTI_NCCL_REFUSED_GIN(ncclResult_t, ncclGinFlushTimeout)
TUTTI_NCCL_REFUSED_GIN(ncclResult_t, ncclGinWaitTimeout)
TUTTI_NCCL_REFUSED_GIN(ncclResult_t, ncclGinWaitCounterTimeout)
TUTTI_NCCL_REFUSED_GIN(ncclResult_t, ncclGinWaitSignalTimeout)
TUTTI_NCCL_REFUSED_GIN(ncclResult_t, ncclGinWaitSignalTimeoutVA)
TUTTI_NCCL_REFUSED_GIN(uint64_t, ncclGinReadCounter)
TUTTI_NCCL_REFUSED_GIN(uint64_t, ncclGinReadSignal)
TUTTI_NCCL_REFUSED_GIN(uint64_t, ncclGinReadSignalVA)
TUTTI_NCCL_REFUSED_GIN(uint64_t*, ncclGinGetSignalShadowPtr)
#undef TUTTI_NCCL_REFUSED_GIN

// ---- barriers and sessions ---------------------------------------------------------------------------

struct ncclGinAllContexts {
  const ncclDevComm& comm;
  TUTTI_NCCL_BOTH constexpr ncclGinAllContexts(const ncclDevComm& of) : comm(of) {}
};

/// What the sessions share. Any arguments will do, because all calls refuse.
#define TUTTI_NCCL_SESSION(name)                   \
  template <class... Arguments>                    \
  NCCL_DEVICE_INLINE explicit name(Arguments...) { \
    __trap();                                      \
  }                                                \
  NCCL_DEVICE_INLINE ~name() {}                    \
  name(const name&) = delete;
#define TUTTI_NCCL_BARRIER(name)                         \
  template <class Coop>                                  \
  struct name {                                          \
    TUTTI_NCCL_SESSION(name)                             \
    template <class... Arguments>                        \
    NCCL_DEVICE_INLINE void arrive(Arguments...) {       \
      __trap();                                          \
    }                                                    \
    template <class... Arguments>                        \
    NCCL_DEVICE_INLINE ncclResult_t wait(Arguments...) { \
      __trap();                                          \
      return ncclInvalidUsage;                           \
    }                                                    \
    template <class... Arguments>                        \
    NCCL_DEVICE_INLINE ncclResult_t sync(Arguments...) { \
      __trap();                                          \
      return ncclInvalidUsage;                           \
    }                                                    \
  };
TUTTI_NCCL_BARRIER(ncclLsaBarrierSession)
TUTTI_NCCL_BARRIER(ncclGinBarrierSession)
TUTTI_NCCL_BARRIER(ncclBarrierSession)
TUTTI_NCCL_BARRIER(ncclCftBarrierSession)
TUTTI_NCCL_REFUSED(ncclGinBarrier)
TUTTI_NCCL_REFUSED(ncclBarrier)

template <class Coop>
struct ncclLLA2ASession {
  TUTTI_NCCL_SESSION(ncclLLA2ASession)
  TUTTI_NCCL_REFUSED_MEMBER(send)
  TUTTI_NCCL_REFUSED_MEMBER(bcast)
  TUTTI_NCCL_REFUSED_MEMBER(endEpoch)
  template <class T>
  NCCL_DEVICE_INLINE T recv(int) {
    __trap();
    return {};
  }
  template <int kLeast, int kMost, class T>
  NCCL_DEVICE_INLINE void recvUnrolled(int, int, int, T (&)[kMost]) {
    __trap();
  }
  template <int kUnroll, class Element, class ToAccumulator, class Reduce>
  NCCL_DEVICE_INLINE auto recvReduce(int, int, int, ToAccumulator convert, Reduce)
      -> decltype(convert(Element())) {
    __trap();
    return convert(Element());
  }
};

enum class ncclMemProxyType : uint32_t { Generic = 1, Fabric = 2 };
enum class ncclMemFenceScope : uint32_t { Cta = 1, Sys = 2 };
TUTTI_NCCL_REFUSED(ncclMemFence)
struct ncclCftSmem {
  alignas(16) uint64_t bar;
};
template <class T>
struct ncclCftOpSum {};
template <class T>
struct ncclCftOpAnd {};
template <class T>
struct ncclCftOpXor {};
template <class T>
struct ncclCftOpOr {};
template <class T>
struct ncclCftOpMin {};
template <class T>
struct ncclCftOpMax {};
template <class Coop>
struct ncclCft {
  TUTTI_NCCL_SESSION(ncclCft)
  TUTTI_NCCL_REFUSED_MEMBER(submit)
  TUTTI_NCCL_REFUSED_MEMBER(flushSmem)
  TUTTI_NCCL_REFUSED_MEMBER(flush)
  TUTTI_NCCL_REFUSED_WAIT(waitCounted)
  TUTTI_NCCL_REFUSED_MEMBER(put)
  TUTTI_NCCL_REFUSED_MEMBER(putCounted)
  TUTTI_NCCL_REFUSED_MEMBER(putCpMask)
  TUTTI_NCCL_REFUSED_MEMBER(putMultimem)
  TUTTI_NCCL_REFUSED_MEMBER(putMultimemCounted)
  TUTTI_NCCL_REFUSED_MEMBER(putMultimemCpMask)
  TUTTI_NCCL_REFUSED_MEMBER(get)
  TUTTI_NCCL_REFUSED_MEMBER(red)
  TUTTI_NCCL_REFUSED_MEMBER(redCounted)
  TUTTI_NCCL_REFUSED_MEMBER(redMultimem)
  TUTTI_NCCL_REFUSED_MEMBER(redMultimemCounted)
  TUTTI_NCCL_REFUSED_MEMBER(pullRed)
};
#undef TUTTI_NCCL_REFUSED_MEMBER
#undef TUTTI_NCCL_REFUSED_WAIT
#undef TUTTI_NCCL_REFUSED_READ
#undef TUTTI_NCCL_SESSION
#undef TUTTI_NCCL_BARRIER

// ---- reductions and copies ---------------------------------------------------------------------------

TUTTI_NCCL_REFUSED(ncclLsaReduceLsaCopy)
TUTTI_NCCL_REFUSED(ncclLsaReduceMultimemCopy)
TUTTI_NCCL_REFUSED(ncclLsaReduceSumLsaCopy)
TUTTI_NCCL_REFUSED(ncclLsaReduceSumMultimemCopy)
TUTTI_NCCL_REFUSED(ncclMultimemReduceSumLsaCopy)
TUTTI_NCCL_REFUSED(ncclMultimemReduceSumMultimemCopy)
TUTTI_NCCL_REFUSED(ncclLsaReduceSum)
TUTTI_NCCL_REFUSED(ncclMultimemReduceSum)
TUTTI_NCCL_REFUSED(ncclLocalReduceSum)
TUTTI_NCCL_REFUSED(ncclLsaCopy)
TUTTI_NCCL_REFUSED(ncclMultimemCopy)
TUTTI_NCCL_REFUSED(ncclLocalCopy)
TUTTI_NCCL_REFUSED(ncclLsaReduceSumCopy)
TUTTI_NCCL_REFUSED(ncclMultimemReduceSumCopy)
TUTTI_NCCL_REFUSED(ncclLocalReduceSumCopy)

#undef TUTTI_NCCL_BOTH
#undef TUTTI_NCCL_REFUSED
#undef TUTTI_NCCL_REFUSED_RESULT

#endif  // NCCL_DEVICE_KERNELS_H_
