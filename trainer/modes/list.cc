#include "trainer/modes/list.h"

namespace tutti::trainer {

std::span<const ModeEntry> modes() {
  return kModes;
}

}  // namespace tutti::trainer
