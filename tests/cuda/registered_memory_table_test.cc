// RegisteredMemoryTable: one rank's table, on the fake driver: what is found where, and what may be offered.
#include "device/registered_memory_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.h"
#include "tests/cuda/driver/control.h"
#include "tests/cuda/trial.h"

namespace tutti::cuda {
namespace {

constexpr uint64_t kBytes = 4096;

/// A rank by itself, with memory of its device.
struct TableBench {
  std::unique_ptr<const Driver> driver;
  std::unique_ptr<Context> context;
  DeviceMemory memory;
  std::optional<RegisteredMemoryTable> table;

  bool open(Trial& trial) {
    auto found = Driver::find();
    if (!trial.ok(found.status(), "finding the driver")) return false;
    driver = std::move(*found);
    auto retained = Context::retain(*driver, 0);
    if (!trial.ok(retained.status(), "context")) return false;
    context = std::move(*retained);
    auto allocated = DeviceMemory::allocate(*context, kBytes);
    if (!trial.ok(allocated.status(), "memory")) return false;
    memory = std::move(*allocated);
    table.emplace(*context);
    return trial.ok(table->open({RegistrationPath{}}), "table");
  }
  const std::byte* at(uint64_t offset) const { return memory.as<std::byte>() + offset; }
  Status add(uint32_t number, uint64_t offset, uint64_t bytes) {
    const auto own = table->offer(at(offset), bytes);
    TUTTI_TRY(own.status());
    const FileDescriptor none;
    return table->map(number, 0, std::span(&own->offer, 1), std::span(&none, 1));
  }
  /// Whether the byte at `offset` is byte `from` of that registered memory, with so many bytes from there on.
  bool finds(uint64_t offset, uint32_t number, uint64_t from, uint64_t bytes) const {
    const Reach found = table->find(at(offset));
    return found.location == (uint64_t{number} << kLocationShift) + from && found.bytes == bytes;
  }
  bool finds_nothing(uint64_t offset) const { return table->find(at(offset)).bytes == 0; }
};

std::string with_table(const std::function<void(Trial&, TableBench&)>& body) {
  return run([&](Trial& trial) {
    {
      TableBench bench;
      if (bench.open(trial)) body(trial, bench);
    }
    trial.is(fake_cuda::leaks().empty(), "left behind: " + fake_cuda::leaks());
  });
}

// Goal: an address is found in the memory that holds it, from the first byte to the last, and nowhere else.
TEST(RegisteredMemoryTableTest, AnAddressIsFoundInTheMemoryThatHoldsIt) {
  EXPECT_EQ(with_table([](Trial& trial, TableBench& bench) {
              trial.is(bench.finds_nothing(0), "in an empty table");
              trial.ok(bench.add(1, 1000, 100), "add");
              trial.ok(bench.add(2, 1100, 50), "add a neighbour");
              trial.is(bench.finds_nothing(999), "before");
              trial.is(bench.finds(1000, 1, 0, 100), "the first byte");
              trial.is(bench.finds(1099, 1, 99, 1), "the last byte");
              trial.is(bench.finds(1100, 2, 0, 50), "the neighbour");
              trial.is(bench.finds_nothing(1150), "behind");
              trial.is(bench.table->table(0) == nullptr, "the rank's own memory needs no table");
            }),
            "");
}

// Goal: memory is registered once: an offer that overlaps is refused, one that only touches is not.
TEST(RegisteredMemoryTableTest, MemoryThatOverlapsIsRefused) {
  EXPECT_EQ(with_table([](Trial& trial, TableBench& bench) {
              trial.ok(bench.add(1, 1000, 100), "add");
              const std::pair<uint64_t, uint64_t> overlaps[] = {
                  {1000, 100}, {950, 51}, {1099, 10}, {1020, 10}, {900, 500}};
              for (const auto& [offset, bytes] : overlaps)
                trial.fails(bench.add(2, offset, bytes), Code::kUnsupported, "overlaps registered memory");
              trial.ok(bench.add(2, 900, 100), "touches the beginning");
              trial.ok(bench.add(3, 1100, 100), "touches the end");
            }),
            "");
}

// Goal: what is unmapped is found no more, and may be registered again, under another number. Unmapping twice
// changes nothing.
TEST(RegisteredMemoryTableTest, UnmappedMemoryMayBeRegisteredAgain) {
  EXPECT_EQ(with_table([](Trial& trial, TableBench& bench) {
              trial.ok(bench.add(1, 1000, 100), "add");
              trial.ok(bench.add(2, 2000, 100), "add");
              bench.table->unmap(1);
              bench.table->unmap(1);
              trial.is(bench.finds_nothing(1000), "unmapped");
              trial.is(bench.finds(2000, 2, 0, 100), "the other stays");
              trial.ok(bench.add(3, 1050, 100), "add again");
              trial.is(bench.finds(1050, 3, 0, 100), "found under the new number");
            }),
            "");
}

}  // namespace
}  // namespace tutti::cuda
