#include "transports/ucx/wire.h"

#include <bit>
#include <cstring>

namespace tutti::ucx {
namespace {

static_assert(std::endian::native == std::endian::little, "words travel as they lie in memory");

constexpr uint32_t kMagic = 0x78637574;  // "tucx"
constexpr uint16_t kVersion = 1;
/// UCX's addresses grow with the devices of a host; those of 8 devices take about 1 KiB.
constexpr size_t kMostWorkerBytes = 64 * 1024;

struct AddressWords {
  uint32_t magic;
  uint16_t version;
  uint16_t zero;
  uint32_t fabrics;
  uint32_t worker_bytes;
};

struct HelloWords {
  uint32_t magic;
  uint16_t version;
  uint16_t epoch;
  uint32_t rank;
  uint32_t connection;
  uint64_t token;
};
static_assert(sizeof(HelloWords) == kHelloBytes);

struct NoteWords {
  uint32_t magic;
  uint32_t kind;
  uint64_t frames;
};
static_assert(sizeof(NoteWords) == kNoteBytes);

struct HeadWords {
  uint64_t token;
  uint32_t connection;
  uint32_t kind_and_received;  ///< 8 and 24 bits
};
static_assert(sizeof(HeadWords) + tcp::kHeaderBytes == kMessageHeadBytes);

Status wrong(const char* what, uint64_t value, uint64_t expected) {
  return {Code::kPeerLost, format("%s %llu (here: %llu)", what, static_cast<unsigned long long>(value),
                                  static_cast<unsigned long long>(expected))};
}

template <typename Words>
Words read(std::span<const std::byte> bytes) {
  Words words{};
  std::memcpy(&words, bytes.data(), sizeof(words));
  return words;
}

}  // namespace

std::vector<std::byte> encode(const Address& address) {
  if (address.worker.empty() || address.worker.size() > kMostWorkerBytes) return {};
  const AddressWords words{.magic = kMagic,
                           .version = kVersion,
                           .zero = 0,
                           .fabrics = address.fabrics,
                           .worker_bytes = static_cast<uint32_t>(address.worker.size())};
  std::vector<std::byte> bytes(sizeof(words) + address.worker.size());
  std::memcpy(bytes.data(), &words, sizeof(words));
  std::memcpy(bytes.data() + sizeof(words), address.worker.data(), address.worker.size());
  return bytes;
}

Result<Address> decode_address(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(AddressWords))
    return wrong("an address of bytes", bytes.size(), sizeof(AddressWords));
  const auto words = read<AddressWords>(bytes);
  if (words.magic != kMagic) return wrong("an address with mark", words.magic, kMagic);
  if (words.version != kVersion) return wrong("an address of version", words.version, kVersion);
  const std::span<const std::byte> worker = bytes.subspan(sizeof(words));
  if (worker.empty() || words.worker_bytes != worker.size() || worker.size() > kMostWorkerBytes)
    return wrong("a worker's address of bytes", words.worker_bytes, worker.size());
  return Address{.fabrics = words.fabrics, .worker = {worker.begin(), worker.end()}};
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  const HelloWords words{.magic = kMagic,
                         .version = kVersion,
                         .epoch = hello.epoch,
                         .rank = hello.rank,
                         .connection = hello.connection,
                         .token = hello.token};
  return std::bit_cast<std::array<std::byte, kHelloBytes>>(words);
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes, const HelloLimits& limits) {
  const auto words = read<HelloWords>(bytes);
  if (words.magic != kMagic) return wrong("a hello with mark", words.magic, kMagic);
  if (words.version != kVersion) return wrong("a hello of version", words.version, kVersion);
  if (words.epoch != limits.epoch) return wrong("a hello of epoch", words.epoch, limits.epoch);
  if (words.rank != limits.rank) return wrong("a hello of rank", words.rank, limits.rank);
  return Hello{
      .rank = words.rank, .epoch = words.epoch, .connection = words.connection, .token = words.token};
}

std::array<std::byte, kNoteBytes> encode(const Note& note) {
  const NoteWords words{.magic = kMagic, .kind = static_cast<uint32_t>(note.kind), .frames = note.frames};
  return std::bit_cast<std::array<std::byte, kNoteBytes>>(words);
}

Result<Note> decode_note(std::span<const std::byte, kNoteBytes> bytes) {
  const auto words = read<NoteWords>(bytes);
  if (words.magic != kMagic) return wrong("a note with mark", words.magic, kMagic);
  if (words.kind < static_cast<uint32_t>(Note::Kind::kUsable) ||
      words.kind > static_cast<uint32_t>(Note::Kind::kSeen))
    return wrong("a note of kind", words.kind, static_cast<uint64_t>(Note::Kind::kSeen));
  return Note{.kind = static_cast<Note::Kind>(words.kind), .frames = words.frames};
}

void encode(const MessageHead& head, std::byte* bytes) {
  const HeadWords words{
      .token = head.token,
      .connection = head.connection,
      .kind_and_received = static_cast<uint32_t>(head.kind) << 24 | (head.received & kReceivedMask)};
  std::memcpy(bytes, &words, sizeof(words));
}

Result<MessageHead> decode_message(std::span<const std::byte> bytes) {
  if (bytes.size() != kMessageHeadBytes) return wrong("a head of bytes", bytes.size(), kMessageHeadBytes);
  const auto words = read<HeadWords>(bytes);
  const uint32_t kind = words.kind_and_received >> 24;
  if (kind > static_cast<uint32_t>(MessageHead::Kind::kProbe))
    return wrong("a message of kind", kind, static_cast<uint64_t>(MessageHead::Kind::kProbe));
  return MessageHead{.token = words.token,
                     .connection = words.connection,
                     .kind = static_cast<MessageHead::Kind>(kind),
                     .received = words.kind_and_received & kReceivedMask};
}

}  // namespace tutti::ucx
