// Goal: a credit that is owed is never overlooked. Method: messages come, are read and reported in any order
// on several channels; the cheap question is compared with asking each channel.
#include "transports/tcp/inbox.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/engine/raw_links.h"
#include "transports/sim/sim.h"

namespace tutti::tcp {
namespace {

constexpr RingShape kShape{.slots = 8, .slot_bytes = 256};
constexpr uint32_t kChannels = 3;

class InboxTest : public testing::Test {
 protected:
  struct Channel {
    test::RingMemory outgoing{kShape};
    test::RingMemory incoming{kShape};
    RecvLink reader = RecvLink::at(incoming.bytes(), kShape, 0);
    uint64_t come = 0;
  };
  static std::vector<ChannelRings> rings(std::array<Channel, kChannels>& channels) {
    std::vector<ChannelRings> rings;
    for (Channel& one : channels)
      rings.push_back({.outgoing = one.outgoing.bytes(), .incoming = one.incoming.bytes()});
    return rings;
  }
  bool owes_credit() const {
    for (uint32_t index = 0; index < kChannels; ++index) {
      if (inbox_.unreported(index) * 2 >= kShape.slots) return true;
    }
    return false;
  }

  std::array<Channel, kChannels> channels_;
  Inbox inbox_{rings(channels_), kShape};
};

TEST_F(InboxTest, ACreditThatIsOwedIsNeverOverlooked) {
  SimRandom random(1);
  int owed = 0;
  int rests = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto index = static_cast<uint32_t>(random.below(kChannels));
    Channel& channel = channels_[index];
    switch (random.below(5)) {
      case 0:
      case 1:
        if (channel.come - inbox_.given_back(index) < kShape.slots)
          inbox_.publish(index, channel.come++, 0, 8);
        break;
      case 2:
      case 3:
        if (channel.reader.has_arrived()) channel.reader.release(channel.reader.word());
        break;
      default: inbox_.report(index);
    }
    ASSERT_TRUE(inbox_.may_owe_credit() || !owes_credit()) << "turn " << turn;
    owed += owes_credit() ? 1 : 0;
    rests += inbox_.may_owe_credit() ? 0 : 1;
  }
  EXPECT_GT(owed, 100);
  EXPECT_GT(rests, 100);
}

}  // namespace
}  // namespace tutti::tcp
