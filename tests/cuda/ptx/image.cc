// The layout of fat binaries was read off what nvcc 13.0 writes (-fatbin, with each --compress-mode).
#include "tests/cuda/ptx/image.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "tests/cuda/ptx/text.h"

namespace fake_cuda::ptx {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint32_t kArchitecture = 90;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
};

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;
};

struct Entry {
  static constexpr uint16_t kPtx = 1;
  static constexpr uint16_t kNative = 2;
  static constexpr uint64_t kLz4 = 0x2000;
  static constexpr uint64_t kZstd = 0x8000;

  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;
  uint32_t unused;
  uint16_t minor;
  uint16_t major;
  uint32_t architecture;
  uint64_t name;
  uint64_t flags;
  uint64_t zero;
  uint64_t unpacked_bytes;
};
static_assert(sizeof(Entry) == 64);

template <class Function>
Function library_function(const char* library, const char* name) {
  void* const loaded = dlopen(library, RTLD_NOW);
  void* const function = loaded != nullptr ? dlsym(loaded, name) : nullptr;
  if (function == nullptr)
    throw Unknown(std::string("a compressed image needs ") + library + ", which is missing");
  return reinterpret_cast<Function>(function);
}

std::string unpack(const Entry& entry, const char* payload) {
  if ((entry.flags & (Entry::kLz4 | Entry::kZstd)) == 0) return {payload, entry.bytes};
  std::string text(entry.unpacked_bytes, '\0');
  bool good = false;
  if ((entry.flags & Entry::kZstd) != 0) {
    const auto decompress =
        library_function<size_t (*)(void*, size_t, const void*, size_t)>("libzstd.so.1", "ZSTD_decompress");
    good = decompress(text.data(), text.size(), payload, entry.compressed_bytes) == text.size();
  } else {
    const auto decompress =
        library_function<int (*)(const char*, char*, int, int)>("liblz4.so.1", "LZ4_decompress_safe");
    good = decompress(payload, text.data(), static_cast<int>(entry.compressed_bytes),
                      static_cast<int>(text.size())) == static_cast<int>(text.size());
  }
  if (!good) throw Unknown("the image cannot be unpacked");
  return text;
}

struct Found {
  Entry entry{};
  const char* payload = nullptr;
};

/// The entry for the newest architecture that serves a device: of its generation if native, else any older
/// one.
Found find_entry(const char* fatbin, uint16_t kind, uint32_t capability) {
  Header header{};
  std::memcpy(&header, fatbin, sizeof header);
  Found best;
  for (uint64_t at = 0; at < header.bytes;) {
    const char* const start = fatbin + header.header_bytes + at;
    Entry entry{};
    std::memcpy(&entry, start, sizeof entry);
    if (entry.header_bytes == 0) break;
    const bool serves = entry.architecture <= capability &&
                        (kind == Entry::kPtx || entry.architecture / 10 == capability / 10);
    if (entry.kind == kind && serves &&
        (best.payload == nullptr || entry.architecture > best.entry.architecture))
      best = {entry, start + entry.header_bytes};
    at += entry.header_bytes + entry.bytes;
  }
  return best;
}

/// The CUDA version that came with PTX of this version: 12.6 had that of 12.5.
int ptx_driver(const Entry& entry) {
  if (entry.major >= 9) return (entry.major + 4) * 1000 + entry.minor * 10;
  return entry.major < 8 ? 12000 : 12000 + 10 * (entry.minor <= 5 ? entry.minor : entry.minor + 1);
}

std::string from_fatbin(const char* fatbin) {
  const Found found = find_entry(fatbin, Entry::kPtx, kArchitecture);
  if (found.payload == nullptr)
    throw Unknown(
        "the image has no PTX for compute capability 9.0 or lower: build with -gencode "
        "arch=compute_90,code=compute_90");
  std::string text = unpack(found.entry, found.payload);
  text.resize(strnlen(text.data(), text.size()));
  return text;
}

}  // namespace

std::string find_ptx(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) {
    Wrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    return find_ptx(wrapper.data);
  }
  if (magic == kFatbinMagic) return from_fatbin(static_cast<const char*>(image));
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) == 0)
    throw Unknown("the image holds machine code only: build with PTX (code=compute_90)");
  return static_cast<const char*>(image);
}

Refusal judge(const void* image, int version, uint32_t capability) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, 1);
  if (magic != (kFatbinMagic & 0xff)) return Refusal::kLoads;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatbinMagic) return Refusal::kLoads;
  const auto* const fatbin = static_cast<const char*>(image);
  const Found native = find_entry(fatbin, Entry::kNative, capability);
  const Found found = native.payload != nullptr ? native : find_entry(fatbin, Entry::kPtx, capability);
  if (found.payload == nullptr) return Refusal::kNoCode;
  if ((found.entry.flags & Entry::kZstd) != 0 && version < 12040) return Refusal::kImage;
  if (native.payload == nullptr)
    return ptx_driver(found.entry) > version ? Refusal::kPtxVersion : Refusal::kLoads;
  const std::string code = unpack(found.entry, found.payload);
  constexpr char kNewAbi = 0x41;
  if (code.at(7) != kNewAbi) return Refusal::kLoads;
  const bool is_of_13 = code.find("tools, release 13.") != std::string::npos;
  return version < (is_of_13 ? 13000 : 12080) ? Refusal::kImage : Refusal::kLoads;
}

}  // namespace fake_cuda::ptx
