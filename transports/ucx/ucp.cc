#include "transports/ucx/ucp.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

namespace tutti::ucx {

Result<std::unique_ptr<const Ucp>> Ucp::find() {
  // The handle is kept, so the library stays loaded. Its dependencies hold ucs_status_string.
  void* const library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Code::kUnsupported,
                  format("libucp.so.0 does not load (%s); install UCX (package libucx0)", dlerror()));
  }
  auto ucp = std::make_unique<Ucp>();
  const char* missing = nullptr;
  const auto look_for = [&](const char* name, auto& member) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, name));
    if (member == nullptr) missing = name;
  };
#define TUTTI_UCP_FIND(member, function) look_for(#function, ucp->member);
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_FIND)
#undef TUTTI_UCP_FIND
  if (missing != nullptr)
    return Status(Code::kUnsupported, format("libucp.so.0 lacks %s; UCX 1.13 or newer is needed", missing));
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp->get_version(&major, &minor, &release);
  if (major != kMajor || minor < kMinor) {
    return Status(Code::kUnsupported, format("libucp.so.0 is UCX %u.%u.%u; 1.13 or a newer 1.x is needed",
                                             major, minor, release));
  }
  return std::unique_ptr<const Ucp>(std::move(ucp));
}

}  // namespace tutti::ucx
