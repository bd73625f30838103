#include "transports/rdma/verbs.h"

#include <dlfcn.h>

namespace tutti::rdma {

Result<std::unique_ptr<const Verbs>> Verbs::find() {
  // The handle is kept, so the library stays loaded.
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(
        Code::kUnsupported,
        format("libibverbs.so.1 does not load (%s); install rdma-core (package libibverbs1)", dlerror()));
  }
  std::unique_ptr<Verbs> verbs(new Verbs);
  const char* missing = nullptr;
  const auto look_for = [&](const char* name, auto& member) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, name));
    return member != nullptr;
  };
#define TUTTI_VERBS_FIND(member, function) \
  if (!look_for(#function, verbs->member)) missing = #function;
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_FIND)
#undef TUTTI_VERBS_FIND
#define TUTTI_VERBS_LOOK_FOR(member, function) (void)look_for(#function, verbs->member);
  TUTTI_VERBS_OPTIONAL_FUNCTIONS(TUTTI_VERBS_LOOK_FOR)
#undef TUTTI_VERBS_LOOK_FOR
  if (missing != nullptr)
    return Status(Code::kUnsupported, format("libibverbs.so.1 lacks %s; update rdma-core", missing));
  // Before Linux 5.12 the first store behind a fork, also of a program that only executes another one, moves
  // a page away from under the device. Where the kernel copies such pages for the child, this does nothing.
  // It fails if the program has registered memory before, and then the program has chosen.
  if (verbs->fork_init != nullptr) (void)verbs->fork_init();
  return std::unique_ptr<const Verbs>(std::move(verbs));
}

}  // namespace tutti::rdma
