// What decoded PTX is, and what runs it: a grid's block of warps. A warp executes each instruction for all of
// its lanes that are at the same place, so registers are arrays of 32 lanes.
//
// Lanes may diverge. Of the groups of lanes that can run, the innermost call and there the earliest
// instruction comes first, so that lanes meet again where their ways join. Instructions that need other lanes
// (shuffles, votes) or other warps (barriers) wait for them; now and then another group has a turn, so that a
// lane that waits in a loop for another lane does not wait forever.
//
// Addresses: generic, global, constant, local and parameter addresses are addresses of the process. Shared
// addresses begin at kSharedStart in each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fake_cuda::ptx {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAll = ~0u;
inline constexpr uint32_t kNone = ~0u;
inline constexpr uint64_t kSharedStart = 1024;  // so that no address of shared memory looks like null

class Warp;
class Block;
struct Function;
struct Instruction;

using Handler = void (*)(Warp&, const Instruction&, uint32_t lanes);

/// How an instruction's address is made.
enum class Base : uint8_t {
  kRegister64,
  kRegister32,
  kLocal,      ///< of the lane's memory in the frame
  kParameter,  ///< of the kernel's parameters
};

enum class Flow : uint8_t {
  kNext,
  kBranch,
  kTable,  ///< brx.idx
  kCall,
  kReturn,
  kExit,
  kWarpSync,  ///< waits for the lanes of the mask in register `e`
  kBarrier,
  kYield,  ///< others should run now
};

/// A register, and how many bits it has.
struct Place {
  uint32_t offset = 0;
  uint32_t bits = 32;
};

/// What some instructions have beside their operands.
struct Extra {
  std::vector<Place> places;      ///< of vectors
  std::vector<uint32_t> targets;  ///< kTable
  // kCall
  const Function* callee = nullptr;
  std::string builtin;                                   ///< such as vprintf
  std::vector<std::pair<uint32_t, uint32_t>> arguments;  ///< in the caller's lane memory: offset, bytes
  std::vector<std::pair<uint32_t, uint32_t>> results;
  bool is_indirect = false;  ///< register `a` holds a Function*
};

struct Instruction {
  Handler run = nullptr;
  Flow flow = Flow::kNext;
  Base base = Base::kRegister64;
  bool negated = false;
  bool is_shared = false;  ///< the address is one of shared memory
  uint8_t bytes = 4;       ///< of an element in memory
  uint8_t kind = 0;        ///< meaning of the handler's own
  uint32_t guard = kNone;
  uint32_t d = 0;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t e = 0;
  uint32_t target = 0;
  int64_t offset = 0;
  const Extra* extra = nullptr;
  int line = 0;
};

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLane,
  kWarp,
  kWarps,
  kMultiprocessor,
  kMultiprocessors,
  kGrid,
  kMaskEq,
  kMaskLt,
  kMaskLe,
  kMaskGt,
  kMaskGe,
  kDynamicShared,
  kDynamicStart,
  kTotalShared,
  kWorkspaceLow,
  kWorkspaceHigh,
  kZero,
  kOne,
};

/// A register that never changes: its value when a frame begins.
struct Fixed {
  uint32_t offset;
  uint32_t bits;
  bool is_special;
  Special special;
  uint64_t value;
};

/// A function, decoded.
struct Function {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::unique_ptr<Extra>> extras;
  std::vector<Fixed> fixed;
  uint32_t register_bytes = 0;
  uint32_t lane_bytes = 0;  ///< of a lane's memory: results, parameters (not of entries), local variables
  std::vector<std::pair<uint32_t, uint32_t>> results;  ///< offset and bytes in a lane's memory
  std::vector<std::pair<uint32_t, uint32_t>>
      parameters;  ///< the same; of an entry: in the kernel's parameters
  uint32_t parameter_bytes = 0;
  uint32_t shared_bytes = 0;
  uint32_t most_threads = 1024;
};

struct Shape {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

/// A launch.
struct GridFacts {
  const Function* entry = nullptr;
  Shape blocks;
  Shape threads;
  uint32_t dynamic_shared_bytes = 0;
  uint32_t multiprocessors = 1;
  uint64_t workspace = 0;  ///< of a cooperative launch, for barriers of the whole grid
  const unsigned char* parameters = nullptr;
};

/// Runs block `index` of the grid to its end. `yield` is called now and then, with whether anything has
/// moved.
void run_block(const GridFacts& grid, uint32_t index, void (*yield)(bool moved));

/// Ends the process: the program has done something that ends a kernel on a device too.
[[noreturn]] void fail(const Warp& warp, const Instruction& instruction, const std::string& what);

/// A call in progress, of one or more lanes of a warp.
struct Frame {
  const Function* function = nullptr;
  Frame* parent = nullptr;
  const Instruction* call = nullptr;
  uint32_t return_to = 0;
  uint32_t depth = 0;
  uint32_t lanes = 0;  ///< that have not returned
  std::vector<unsigned char> memory;
  unsigned char* registers = nullptr;
  unsigned char* lane_memory = nullptr;  ///< function->lane_bytes for each lane

  unsigned char* of_lane(uint32_t lane) const { return lane_memory + size_t{function->lane_bytes} * lane; }
};

class Warp {
 public:
  Warp(Block& block, uint32_t index, uint32_t lanes);

  /// Executes about `budget` instructions, or until all lanes wait; whether anything was executed.
  bool run(uint64_t budget);
  bool is_done() const { return alive_ == 0; }

  // For handlers.
  template <class T>
  T* at(uint32_t offset) {
    return reinterpret_cast<T*>(frame_->registers + offset);
  }
  uint32_t& predicate(uint32_t offset) { return *at<uint32_t>(offset); }
  void set_predicate(uint32_t offset, uint32_t lanes, uint32_t values) {
    uint32_t& whole = predicate(offset);
    whole = (whole & ~lanes) | (values & lanes);
  }
  Block& block() { return block_; }
  const Frame& frame() const { return *frame_; }
  uint32_t index() const { return index_; }
  uint32_t alive() const { return alive_; }
  /// The lanes that execute the instruction together, whether its guard holds or not.
  uint32_t group() const { return group_; }
  /// Where the instruction's address lies, checked, for each of the lanes.
  void addresses(const Instruction& instruction, uint32_t lanes, uint32_t bytes,
                 std::array<unsigned char*, kLanes>& into);

  // For the block.
  /// Lets the lanes go on that wait at barrier `id`; `red` is the outcome of its reduction.
  void release(uint32_t id, const std::array<uint32_t, 3>& red);

 private:
  uint32_t pick(uint32_t ready);
  bool run_group(uint32_t ready, uint64_t& budget);
  bool step(const Instruction& instruction, uint32_t active, uint32_t& pc);
  void move_lanes(uint32_t lanes, uint32_t pc);
  void call(const Instruction& instruction, uint32_t active, uint32_t pc);
  void leave(uint32_t lanes);
  void exit(uint32_t lanes);
  bool sync(const Instruction& instruction, uint32_t active, uint32_t pc);
  bool complete_syncs();
  void arrive(const Instruction& instruction, uint32_t active, uint32_t pc);
  Frame* make_frame(const Function& function);
  void fill_fixed(Frame& frame, const Fixed& fixed) const;
  uint64_t special(Special which, uint32_t lane) const;

  Block& block_;
  const uint32_t index_;
  uint32_t alive_;
  uint32_t group_ = 0;
  uint32_t syncing_ = 0;
  uint32_t at_barrier_ = 0;
  uint64_t turns_ = 0;
  Frame* frame_ = nullptr;  ///< of the group that runs
  std::array<Frame*, kLanes> frames_{};
  std::array<uint32_t, kLanes> pcs_{};
  std::array<uint8_t, kLanes> barrier_ids_{};
  std::array<const Instruction*, kLanes> barrier_instructions_{};
  std::vector<std::unique_ptr<Frame>> all_frames_;
  std::map<const Function*, std::vector<Frame*>> free_frames_;
};

class Block {
 public:
  Block(const GridFacts& grid, uint32_t index);
  bool run(uint64_t budget);
  bool is_done() const { return live_ == 0; }

  const GridFacts& grid() const { return grid_; }
  Shape index() const { return index_; }
  uint32_t number() const { return number_; }
  uint64_t shared_bytes() const { return shared_.size(); }
  unsigned char* shared() { return shared_.data(); }
  unsigned char* shared_at(uint64_t address, uint64_t bytes) {
    const uint64_t at = address - kSharedStart;
    return at < shared_.size() && bytes <= shared_.size() - at ? shared_.data() + at : nullptr;
  }
  unsigned char* parameters() { return parameters_.data(); }

  /// `threads` more have come to barrier `id`; 0 expected: all of the block.
  void arrive(uint32_t id, uint32_t threads, uint32_t expected, uint32_t holds);
  void exited(uint32_t threads);

 private:
  struct Barrier {
    uint32_t arrived = 0;
    uint32_t expected = 0;
    uint32_t holds = 0;  ///< threads whose predicate was true
  };
  void check(uint32_t id);

  const GridFacts& grid_;
  const uint32_t number_;
  Shape index_;
  uint32_t live_;
  std::vector<unsigned char> shared_;
  std::vector<unsigned char> parameters_;
  std::array<Barrier, 16> barriers_{};
  std::vector<std::unique_ptr<Warp>> warps_;
};

}  // namespace fake_cuda::ptx
