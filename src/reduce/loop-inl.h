// The loops of the reduction kernels, once per SIMD target: whole vectors, the remainder, non-temporal
// stores.
//
// A kernel is one (element type, operator, association). It is called per slice, so it tries the short cases
// first: a copy, a few elements. Long jobs run a loop for two sources or one for any number, whose branches
// on that number are well predicted. The remainder is a masked vector with AVX-512, elsewhere the job's last
// whole vector once more. No byte outside the buffers is touched.
//
// No software prefetch: on Zen 4, prefetching 256 to 4096 bytes ahead gained nothing or lost, from L2, L3 and
// lines that the other core had just written.
//
// foreach_target.h includes this file once per target, hence the unusual guard.
#if defined(TUTTI_REDUCE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_LOOP_INL_H_
#undef TUTTI_REDUCE_LOOP_INL_H_
#else
#define TUTTI_REDUCE_LOOP_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "reduce/copy-inl.h"
#include "reduce/scalar.h"
#include "reduce/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

template <class T, class Op, Association kAssociation>
void kernel(const Job& job) {
  constexpr bool kTrivialCopy =
      !std::is_same_v<T, bool> && (kAssociation == Association::kLeft || !Element<T>::kFloat);
  if (kTrivialCopy && is_copy<Op>(job)) return copy_bytes(job, job.count * Element<T>::kBytes);
  reduce_scalars<Element<T>, Op, kAssociation>(job);
}

#else

/// The other inputs of a job, prepared for vectors once per call.
template <class Format, class Op>
struct Extras {
  using Part = typename Format::Part;
  using Lane = hn::TFromV<Part>;
  Part scale;
  Divisor<Part> divisor;

  explicit HWY_INLINE Extras(const Job& job)
      : scale(hn::Set(hn::DFromV<Part>(), Op::kScaled ? Format::Elem::from_bits(job.scale_bits) : Lane{0})),
        divisor(Op::kAverage ? job.divisor : 1) {}
};

// Functions for map.
template <class Format, class Op>
struct Combine {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return Op::template apply<Format>(a, b);
  }
};
template <class Format>
struct Round {
  template <class V>
  HWY_INLINE V operator()(V value) const {
    return Format::round(value);
  }
};
struct ReplaceNan {
  template <class V>
  HWY_INLINE V operator()(V value) const {
    return replace_nan(value);
  }
};
template <class V>
struct MultiplyBy {
  V factor;
  HWY_INLINE V operator()(V value) const { return multiply(value, factor); }
};

/// The pointers of a job with two sources, in registers: after stores to sinks, compilers would reload them
/// from the job.
struct PairEnds {
  static constexpr bool kPair = true;
  const Job& job;
  const uint8_t* left_source;
  const uint8_t* right_source;
  uint8_t* first_sink;
  uint32_t sink_count;

  explicit HWY_INLINE PairEnds(const Job& from)
      : job(from),
        left_source(source_bytes(from, 0)),
        right_source(source_bytes(from, 1)),
        first_sink(sink_bytes(from, 0)),
        sink_count(from.sink_count) {}
  HWY_INLINE uint32_t source_count() const { return 2; }
  HWY_INLINE const uint8_t* source(uint32_t k) const { return k == 0 ? left_source : right_source; }
};

struct JobEnds {
  static constexpr bool kPair = false;
  const Job& job;
  uint8_t* first_sink;
  uint32_t sink_count;

  explicit HWY_INLINE JobEnds(const Job& from)
      : job(from), first_sink(sink_bytes(from, 0)), sink_count(from.sink_count) {}
  HWY_INLINE uint32_t source_count() const { return job.source_count; }
  HWY_INLINE const uint8_t* source(uint32_t k) const { return source_bytes(job, k); }
};

struct WholeAccess {
  template <class Format>
  HWY_INLINE auto load(const uint8_t* at) const {
    return load_parts<Format>(at);
  }
};

/// Reads and writes only the first bytes of a vector.
#if HWY_TARGET == HWY_AVX3
class PartialAccess {
 public:
  explicit HWY_INLINE PartialAccess(size_t bytes) : mask_(hn::FirstN(Tag<uint8_t>(), bytes)) {}
  template <class Format>
  HWY_INLINE auto load(const uint8_t* at) const {
    return Format::decode(hn::MaskedLoad(mask_, Tag<uint8_t>(), at));
  }
  HWY_INLINE void store(ByteVector vector, uint8_t* at) const {
    hn::BlendedStore(vector, mask_, Tag<uint8_t>(), at);
  }

 private:
  hn::Mask<Tag<uint8_t> > mask_;
};
#else
class PartialAccess {
 public:
  explicit HWY_INLINE PartialAccess(size_t bytes) : bytes_(bytes) {}
  template <class Format>
  HWY_INLINE auto load(const uint8_t* at) const {
    HWY_ALIGN uint8_t stage[kVectorBytes] = {};
    move_small<kVectorBytes - 1>(at, stage, bytes_);
    return Format::decode(hn::Load(Tag<uint8_t>(), stage));
  }
  HWY_INLINE void store(ByteVector vector, uint8_t* at) const {
    HWY_ALIGN uint8_t stage[kVectorBytes];
    hn::Store(vector, Tag<uint8_t>(), stage);
    move_small<kVectorBytes - 1>(stage, at, bytes_);
  }

 private:
  size_t bytes_;
};
#endif

/// Reduces one block, kUnits vectors of bytes, at one offset. Loops over sources and sinks run few times;
/// compilers would unroll them to the size of the arrays.
template <class Format, class Op, Association kAssociation, int kUnits, class Ends, class Access>
struct BlockReducer {
  using Result = Group<typename Format::Part, kUnits * Format::kParts>;
  static constexpr bool kTree = kAssociation == Association::kTree && Format::Elem::kFloat;

  const Ends& ends;
  size_t offset;
  const Extras<Format, Op>& extras;
  const Access& access;

  HWY_INLINE auto unit(const uint8_t* at, size_t u) const {
    return access.template load<Format>(at + u * kVectorBytes);
  }
  HWY_INLINE Result units(const uint8_t* at) const {
    if constexpr (kUnits == 1) {
      return unit(at, 0);
    } else if constexpr (kUnits == 2) {
      const auto first = unit(at, 0);
      const auto second = unit(at, 1);
      return {first.a, first.b, second.a, second.b};
    } else {
      return {unit(at, 0).a, unit(at, 1).a, unit(at, 2).a, unit(at, 3).a};
    }
  }

  HWY_INLINE Result leaf(uint32_t k) const {
    const Result operand = units(ends.source(k) + offset);
    if constexpr (Op::kScaled) {
      if (ends.job.scaled_sources >> k & 1) {
        const Result product = map(MultiplyBy<typename Format::Part>{extras.scale}, operand);
        return kTree ? round(product) : product;
      }
    }
    return operand;
  }

  static HWY_INLINE Result combine(const Result& a, const Result& b) {
    return map(Combine<Format, Op>(), a, b);
  }
  static HWY_INLINE Result round(const Result& value) { return map(Round<Format>(), value); }

  HWY_INLINE Result left() const {
    const uint32_t source_count = ends.source_count();
    Result result = leaf(0);
    HWY_UNROLL(1)
    for (uint32_t k = 1; k < source_count; ++k) result = combine(result, leaf(k));
    return result;
  }

  /// The canonical tree of up to eight operands: pairs, pairs of pairs (subtotal), pairs of those. A node is
  /// rounded when it becomes an operand, the root by encode.
  HWY_INLINE Result tree() const {
    const uint32_t source_count = ends.source_count();
    Result total = leaf(0);
    HWY_UNROLL(1)
    for (uint32_t first = 0; first < source_count; first += 4) {
      Result subtotal = total;
      HWY_UNROLL(1)
      for (uint32_t k = first; k < HWY_MIN(first + 4, source_count); k += 2) {
        Result pair = leaf(k);
        if (k + 1 < source_count) pair = combine(pair, leaf(k + 1));
        subtotal = k == first ? pair : combine(round(subtotal), round(pair));
      }
      total = first == 0 ? subtotal : combine(round(total), round(subtotal));
    }
    return total;
  }

  /// All operands combined, not yet rounded.
  HWY_INLINE Result combined() const {
    if constexpr (Ends::kPair) {
      return combine(leaf(0), leaf(1));
    } else {
      return kTree ? tree() : left();
    }
  }

  HWY_INLINE Result finished(const Result& value) const {
    if constexpr (Op::kAverage) {
      if (ends.job.finish) return map(extras.divisor, kTree ? round(value) : value);
    }
    return value;
  }

  /// The value to store.
  HWY_INLINE Result run() const {
    const Result result = finished(combined());
    if constexpr (Format::Elem::kFloat && (kTree || Op::kExact)) {
      return map(ReplaceNan(), result);
    } else {
      return result;
    }
  }
};

template <class Format, class Op, Association kAssociation>
struct Loops {
  using Extra = Extras<Format, Op>;
  static constexpr int kUnits = 4 / Format::kParts;
  static constexpr size_t kBlockBytes = kUnits * kVectorBytes;

  template <int kBlockUnits, class Ends, class Access>
  static HWY_INLINE auto reduce(const Ends& ends, size_t offset, const Extra& extras, const Access& access) {
    return BlockReducer<Format, Op, kAssociation, kBlockUnits, Ends, Access>{ends, offset, extras, access}
        .run();
  }

  template <class Ends>
  static HWY_INLINE auto reduce_vector(const Ends& ends, size_t offset, const Extra& extras) {
    return Format::encode(reduce<1>(ends, offset, extras, WholeAccess()));
  }

  template <class Ends, class Encoded>
  static HWY_INLINE void store_to_all(const Encoded& result, const Ends& ends, size_t offset) {
    store(result, ends.first_sink + offset);
    HWY_UNROLL(1)
    for (uint32_t m = 1; m < ends.sink_count; ++m) store(result, sink_bytes(ends.job, m) + offset);
  }

  /// Reduces less than a vector.
  template <class Ends>
  static HWY_INLINE void run_partial(const Ends& ends, size_t offset, size_t bytes, const Extra& extras) {
    const PartialAccess access(bytes);
    const ByteVector result = joined(Format::encode(reduce<1>(ends, offset, extras, access)));
    access.store(result, ends.first_sink + offset);
    HWY_UNROLL(1)
    for (uint32_t m = 1; m < ends.sink_count; ++m) access.store(result, sink_bytes(ends.job, m) + offset);
  }
  /// The same out of line: one copy for any number of sources.
  static HWY_NOINLINE void run_partial_any(const JobEnds& ends, size_t offset, size_t bytes,
                                           const Extra& extras) {
    run_partial(ends, offset, bytes, extras);
  }
  /// Less than one vector from two sources, without a set-up.
  static HWY_INLINE void run_small_pair(const Job& job, size_t bytes) {
    run_partial(PairEnds(job), 0, bytes, Extra(job));
  }

#if HWY_TARGET == HWY_AVX3
  /// The remainder after at least one whole vector: a masked vector.
  template <class Ends>
  struct Tail {
    HWY_INLINE Tail(const Ends&, size_t, const Extra&) {}
    HWY_INLINE void finish(const Ends& ends, size_t offset, size_t bytes, const Extra& extras) const {
      if (offset == bytes) return;
      if constexpr (Ends::kPair) {
        run_partial(ends, offset, bytes - offset, extras);
      } else {
        run_partial_any(ends, offset, bytes - offset, extras);
      }
    }
  };
#else
  /// The remainder after at least one whole vector: the job's last vector, overlapping the one before.
  /// Reduced first, because that one may overwrite sources (in place).
  template <class Ends>
  struct Tail {
    using Encoded = decltype(reduce_vector(std::declval<Ends>(), 0, std::declval<Extra>()));
    Encoded result;
    HWY_INLINE Tail(const Ends& ends, size_t bytes, const Extra& extras)
        : result(reduce_vector(ends, bytes - kVectorBytes, extras)) {}
    HWY_INLINE void finish(const Ends& ends, size_t offset, size_t bytes, const Extra&) const {
      if (offset != bytes) store_to_all(result, ends, bytes - kVectorBytes);
    }
  };
#endif

  template <class Result>
  static HWY_INLINE auto encode_block(const Result& block) {
    using Parts = Group<typename Format::Part, Format::kParts>;
    using Encoded = decltype(Format::encode(std::declval<Parts>()));
    using Block = Group<Encoded, kUnits>;
    if constexpr (kUnits == 1) {
      return Block{Format::encode(block)};
    } else if constexpr (kUnits == 2) {
      return Block{Format::encode({block.a, block.b}), Format::encode({block.c, block.d})};
    } else {
      return Block{Format::encode({block.a}), Format::encode({block.b}), Format::encode({block.c}),
                   Format::encode({block.d})};
    }
  }

  /// At least one vector. `Ends`: two sources or any number. kStreams: whole blocks take non-temporal stores
  /// to the sinks of StreamPlan (a vector at a time, 64 KiB took 1.1 times as long, Granite Rapids), what is
  /// left ordinary ones.
  template <class Ends, bool kStreams>
  static HWY_NOINLINE void run_blocks(const Job& job, size_t bytes) {
    const Ends ends(job);
    const Extra extras(job);
    const Tail<Ends> tail(ends, bytes, extras);
    size_t offset = 0;
    uint32_t streaming = 0;
    if constexpr (kStreams) {
      const StreamPlan plan(job, bytes, Format::Elem::kBytes, kVectorBytes);
      streaming = plan.sinks;
      offset = plan.head_bytes;
      if (offset != 0) run_partial_any(JobEnds(job), 0, offset, extras);
    }
    for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) {
      const auto block = encode_block(reduce<kUnits>(ends, offset, extras, WholeAccess()));
      store_block<kStreams>(block, ends.first_sink + offset, streaming & 1);
      HWY_UNROLL(1)
      for (uint32_t m = 1; m < ends.sink_count; ++m)
        store_block<kStreams>(block, sink_bytes(job, m) + offset, streaming >> m & 1);
    }
    for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
      store_to_all(reduce_vector(ends, offset, extras), ends, offset);
    }
    tail.finish(ends, offset, bytes, extras);
    if (streaming != 0) hwy::FlushStream();
  }

  template <class Ends>
  static HWY_INLINE void run_long(const Job& job, size_t bytes) {
    return job.streaming_sinks == 0 ? run_blocks<Ends, false>(job, bytes)
                                    : run_blocks<Ends, true>(job, bytes);
  }

  template <bool kMayStream, class Block>
  static HWY_INLINE void store_block(const Block& block, uint8_t* at, bool streams) {
    if (kMayStream && streams) {
      store_group<true>(block, at);
    } else {
      store_group(block, at);
    }
  }

  /// Handles all kinds of jobs, one vector at a time, with non-temporal stores to the sinks of StreamPlan.
  static HWY_NOINLINE void run_any(const Job& job, size_t bytes) {
    const JobEnds ends(job);
    const Extra extras(job);
    if (bytes < kVectorBytes) return run_partial_any(ends, 0, bytes, extras);
    const StreamPlan plan(job, bytes, Format::Elem::kBytes, kVectorBytes);
    const Tail<JobEnds> tail(ends, bytes, extras);
    size_t offset = plan.head_bytes;
    if (offset != 0) run_partial_any(ends, 0, offset, extras);
    for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
      const auto result = reduce_vector(ends, offset, extras);
      HWY_UNROLL(1)
      for (uint32_t m = 0; m < ends.sink_count; ++m) {
        uint8_t* sink = sink_bytes(job, m) + offset;
        if (plan.sinks >> m & 1) {
          stream(result, sink);
        } else {
          store(result, sink);
        }
      }
    }
    tail.finish(ends, offset, bytes, extras);
    if (plan.sinks != 0) hwy::FlushStream();
  }
};

/// Up to this many elements are reduced one by one. Zen 4, float32: two elements take 4.0 ns. As a masked
/// vector they take 2.4 ns, but 7.3 ns in short messages, whose operand was just written or whose result is
/// read at once (a masked access cannot use the store buffer). AVX2: less than a vector takes 15 to 20 ns,
/// seven elements one by one 7 ns, four of bfloat16 9 ns.
template <class Elem>
constexpr size_t scalar_count() {
  if (Elem::kBytes >= 4) return HWY_TARGET == HWY_AVX3 ? 2 : 7;
  return HWY_TARGET == HWY_AVX3 ? 0 : 4;
}

template <class T, class Op, Association kAssociation>
void kernel(const Job& job) {
  using Elem = Element<T>;
  // With an exact function the order of operands does not matter.
  using Loop = Loops<typename FormatOf<T>::Type, Op, Op::kExact ? Association::kLeft : kAssociation>;
  constexpr bool kTrivialCopy =
      !std::is_same_v<T, bool> && (kAssociation == Association::kLeft || !Elem::kFloat);
  const size_t bytes = job.count * Elem::kBytes;
  if constexpr (Op::kHot) {
    if (job.source_count == 2) {
      if (scalar_count<Elem>() != 0 && job.count <= scalar_count<Elem>()) {
        return reduce_scalar_pairs<Elem, Op, kAssociation>(job);
      }
      if (bytes < kVectorBytes) return Loop::run_small_pair(job, bytes);
      return Loop::template run_long<PairEnds>(job, bytes);
    }
  }
  if (kTrivialCopy && is_copy<Op>(job)) return copy_bytes(job, bytes);
  if constexpr (Op::kHot) {
    if (job.count <= scalar_count<Elem>()) return reduce_scalars<Elem, Op, kAssociation>(job);
    if (bytes >= kVectorBytes) return Loop::template run_long<JobEnds>(job, bytes);
    return Loop::run_partial_any(JobEnds(job), 0, bytes, typename Loop::Extra(job));
  } else {
    Loop::run_any(job, bytes);
  }
}

#endif  // SIMD targets

/// The kernels of one element type. `Wrapping` replaces T where signedness does not matter, so that signed
/// and unsigned integers share code.
template <class T, class Wrapping, Association kAssociation>
Kernel find_for(ReduceOp op) {
  return operators::visit(static_cast<size_t>(op), [](auto row) -> Kernel {
    using Row = decltype(row);
    using Function = typename Row::Function;
    constexpr bool kSigned = Function::kSigned || Row::kRole == operators::Role::kAverage;
    if constexpr (Row::is_defined(std::is_integral_v<Wrapping> ? operators::kIntegers : operators::kFloats)) {
      return kernel<std::conditional_t<kSigned, T, Wrapping>, VectorOperator<Function, Row::kRole>,
                    kAssociation>;
    } else {
      return nullptr;
    }
  });
}

template <class T>
Kernel find_for_integer(ReduceOp op) {
  return find_for<T, std::make_unsigned_t<T>, Association::kLeft>(op);
}

template <class T>
Kernel find_for_float(ReduceOp op, Association association) {
  return association == Association::kTree ? find_for<T, T, Association::kTree>(op)
                                           : find_for<T, T, Association::kLeft>(op);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
