// Status and Result<T>: what a caller may rely on when a function reports success or failure.
#include "core/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace tutti {
namespace {

// Goal: success carries nothing and is recognisable by every accessor.
TEST(StatusTest, SuccessHasNoText) {
  for (const Status& status : {Status(), Status::ok(), Status(Code::kOk, "ignored")}) {
    EXPECT_TRUE(status.is_ok());
    EXPECT_TRUE(static_cast<bool>(status));
    EXPECT_EQ(status.code(), Code::kOk);
    EXPECT_EQ(status.text(), "");
  }
}

// Goal: a failure keeps its code and sentence, also through copies that outlive the original.
TEST(StatusTest, FailureSurvivesItsOriginal) {
  Status copy;
  {
    const Status original(Code::kPeerLost, "rank 3 is gone");
    copy = original;
  }
  EXPECT_FALSE(copy.is_ok());
  EXPECT_FALSE(static_cast<bool>(copy));
  EXPECT_EQ(copy.code(), Code::kPeerLost);
  EXPECT_EQ(copy.text(), "rank 3 is gone");
}

// Goal: success costs one pointer, as the header promises.
TEST(StatusTest, IsNoLargerThanASharedPointer) {
  EXPECT_EQ(sizeof(Status), sizeof(std::shared_ptr<int>));
}

// Goal: every code has a name of its own and an unknown value is not undefined behaviour.
TEST(CodeNameTest, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int32_t code = 0; code <= static_cast<int32_t>(Code::kInProgress); ++code) {
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Code::kInProgress) + 1);
  EXPECT_EQ(code_name(static_cast<Code>(1000)), "unknown result code");
  EXPECT_FALSE(names.contains("unknown result code"));
}

// Goal: a Result holds a value or the status that says why there is none, never both.
TEST(ResultTest, HoldsAValueOrAStatus) {
  const Result<int> good = 7;
  EXPECT_TRUE(good.is_ok());
  EXPECT_EQ(*good, 7);
  EXPECT_TRUE(good.status().is_ok());

  const Result<int> bad = Status(Code::kTimeout, "late");
  EXPECT_FALSE(bad.is_ok());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.status().code(), Code::kTimeout);
}

// Goal: values that can only be moved pass through a Result.
TEST(ResultTest, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.is_ok());
  const std::unique_ptr<int> owner = std::move(*result);
  EXPECT_EQ(*owner, 5);
}

Status stop_at(int& steps, Code code) {
  ++steps;
  TUTTI_TRY(Status(code, "stopped"));
  ++steps;
  return Status::ok();
}

// Goal: TUTTI_TRY leaves at a failure, hands it on unchanged, and does nothing at success.
TEST(TryTest, LeavesTheFunctionAtAFailure) {
  int steps = 0;
  EXPECT_EQ(stop_at(steps, Code::kAborted).text(), "stopped");
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(stop_at(steps, Code::kOk).is_ok());
  EXPECT_EQ(steps, 3);
}

// Goal: messages longer than any fixed buffer are kept whole; an empty pattern gives an empty text.
TEST(FormatTest, KeepsTextOfAnyLength) {
  EXPECT_EQ(format("rank %d of %s", 3, "four"), "rank 3 of four");
  const std::string text(10'000, 'x');
  EXPECT_EQ(format("%s!", text.c_str()), text + "!");
  EXPECT_EQ(format("%s", ""), "");
}

// Goal: a system error names the call, the reason and errno; lack of memory has a code of its own.
TEST(SystemErrorTest, NamesCallReasonAndNumber) {
  const Status refused = system_error("open /nowhere", ENOENT);
  EXPECT_EQ(refused.code(), Code::kSystemError);
  EXPECT_EQ(refused.text(), "open /nowhere: No such file or directory (errno 2)");
  EXPECT_EQ(system_error("mmap", ENOMEM).code(), Code::kOutOfMemory);
}

}  // namespace
}  // namespace tutti
