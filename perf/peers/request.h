// One line of the orchestrator's protocol: a verb, then key=value words.
//
// Each rank reads its own named pipe. So a job that waits for its turn sleeps in read() and uses no core
// while another library is measured. Rank 0 answers each request with one line of JSON on a common pipe.
#pragma once

#include <cstddef>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

namespace peers {

enum class Collective {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kPingPong,
  kBarrier
};
enum class ElementType { kFloat32, kFloat16, kBfloat16 };
enum class Memory { kMalloc, kLibrary };

inline size_t element_bytes(ElementType type) {
  return type == ElementType::kFloat32 ? 4 : 2;
}

/// What to measure, and how long. `bytes` is nccl-tests' size column: for all_gather, reduce_scatter and
/// all_to_all the rank count times the bytes of one rank's block.
struct Request {
  std::string verb;
  Collective collective = Collective::kAllReduce;
  ElementType type = ElementType::kFloat32;
  Memory memory = Memory::kMalloc;
  size_t bytes = 0;
  size_t footprint_bytes = size_t{256} << 20;  // of the rotated buffers of all ranks
  size_t slots = 0;  // buffers to rotate over; 0: by the size (see BufferRing), 1: one buffer for all calls
  double batch_us = 3'000;   // a batch repeats the call until it lasts about this long
  double budget_us = 1.5e6;  // stop after this time, but never before 3 batches
  int batches = 11;
  bool check = false;
  int limit_s = 60;  // SIGALRM kills the process if the request takes longer
  std::map<std::string, std::string> words;
};

template <class Enum>
Enum lookup(const std::map<std::string, Enum>& table, const std::string& word) {
  const auto found = table.find(word);
  if (found == table.end()) throw std::runtime_error("unknown word in a request: " + word);
  return found->second;
}

inline Request parse_request(const std::string& text) {
  Request request;
  std::istringstream words(text);
  words >> request.verb;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error("a request's word has no '=': " + word);
    request.words[word.substr(0, equals)] = word.substr(equals + 1);
  }
  static const std::map<std::string, Collective> kCollectives = {
      {"all_reduce", Collective::kAllReduce},
      {"all_gather", Collective::kAllGather},
      {"reduce_scatter", Collective::kReduceScatter},
      {"broadcast", Collective::kBroadcast},
      {"reduce", Collective::kReduce},
      {"all_to_all", Collective::kAllToAll},
      {"ping_pong", Collective::kPingPong},
      {"barrier", Collective::kBarrier}};
  static const std::map<std::string, ElementType> kTypes = {{"float32", ElementType::kFloat32},
                                                            {"float16", ElementType::kFloat16},
                                                            {"bfloat16", ElementType::kBfloat16}};
  static const std::map<std::string, Memory> kMemories = {{"malloc", Memory::kMalloc},
                                                          {"library", Memory::kLibrary}};
  for (const auto& [key, value] : request.words) {
    if (key == "collective") request.collective = lookup(kCollectives, value);
    if (key == "type") request.type = lookup(kTypes, value);
    if (key == "memory") request.memory = lookup(kMemories, value);
    if (key == "bytes") request.bytes = std::stoull(value);
    if (key == "footprint_bytes") request.footprint_bytes = std::stoull(value);
    if (key == "slots") request.slots = std::stoull(value);
    if (key == "batch_us") request.batch_us = std::stod(value);
    if (key == "budget_us") request.budget_us = std::stod(value);
    if (key == "batches") request.batches = std::stoi(value);
    if (key == "check") request.check = value == "1";
    if (key == "limit_s") request.limit_s = std::stoi(value);
  }
  return request;
}

}  // namespace peers
