// The meeting of the ranks of one host: what they are told at its deadline.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/bootstrap.h"
#include "core/clock.h"

namespace tutti::test {
namespace {

class MeetingTest : public testing::Test {
 protected:
  MeetingTest() {
    control_ = std::move(*ControlThread::start());
    hubs_ = std::make_unique<Hubs>(*control_);
    auto id = hubs_->open({});
    EXPECT_TRUE(id.status().is_ok()) << id.status().text();
    id_ = *id;
  }
  // What serves the id lives on the control thread, and uses the hubs.
  ~MeetingTest() override { control_.reset(); }

  Meeting join(uint32_t rank, uint64_t deadline_ns) {
    auto meeting = Meeting::join(id_, 2, rank, deadline_ns, nullptr);
    EXPECT_TRUE(meeting.status().is_ok()) << meeting.status().text();
    return std::move(*meeting);
  }

 private:
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<Hubs> hubs_;
  UniqueId id_;
};

// A rank that had joined and then hung was not named. Method: rank 0's deadline is over when it comes.
TEST_F(MeetingTest, ARankThatDoesNotComeToAnExchangeIsNamed) {
  const Meeting hangs = join(1, UINT64_MAX);
  Meeting waits = join(0, now_ns());
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("all 2 ranks have joined, but then these have not come: 1"), text.npos) << text;
}

TEST_F(MeetingTest, ARankThatHasNotJoinedIsNamed) {
  Meeting waits = join(0, now_ns());
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("of 2 ranks, these have not joined: 1"), text.npos) << text;
}

// A failure that came while a rank asked who was missing was taken for the answer.
TEST_F(MeetingTest, AFailureAtTheDeadlineIsTheError) {
  Meeting fails = join(1, UINT64_MAX);
  Meeting waits = join(0, now_ns());
  fails.fail({Code::kMismatch, "rank 1 cannot take part"});
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kMismatch);
  EXPECT_EQ(all.status().text(), "rank 1 cannot take part");
}

}  // namespace
}  // namespace tutti::test
