// hwloc, found at run time. Its library writes the machine as XML, and the importer of files reads that. So
// there is one way from hwloc to a graph, and no header of hwloc is needed. The functions are hwloc 2's
// published interface.
#include <dlfcn.h>

#include <utility>

#include "topology/detect.h"

namespace tutti::topology {
namespace {

using HwlocTopology = struct HwlocTopologyHandle*;

struct HwlocFunctions {
  int (*init)(HwlocTopology* topology) = nullptr;
  int (*set_io_filter)(HwlocTopology topology, int filter) = nullptr;
  int (*load)(HwlocTopology topology) = nullptr;
  int (*export_xml)(HwlocTopology topology, char** text, int* bytes, unsigned long flags) = nullptr;
  void (*free_xml)(HwlocTopology topology, char* text) = nullptr;
  void (*destroy)(HwlocTopology topology) = nullptr;
};

constexpr int kKeepImportant = 3;  // HWLOC_TYPE_FILTER_KEEP_IMPORTANT

template <class Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

class HwlocLibrary final : public HwlocSource {
 public:
  Result<std::string> machine_xml() override {
    // Stays open: hwloc's plugins may have threads.
    void* library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Status(Code::kUnsupported, "libhwloc.so.15 is not installed");
    HwlocFunctions f;
    if (!look_up(library, "hwloc_topology_init", f.init) ||
        !look_up(library, "hwloc_topology_set_io_types_filter", f.set_io_filter) ||
        !look_up(library, "hwloc_topology_load", f.load) ||
        !look_up(library, "hwloc_topology_export_xmlbuffer", f.export_xml) ||
        !look_up(library, "hwloc_free_xmlbuffer", f.free_xml) ||
        !look_up(library, "hwloc_topology_destroy", f.destroy)) {
      return Status(Code::kUnsupported, "libhwloc.so.15 is not hwloc 2");
    }
    HwlocTopology topology = nullptr;
    if (f.init(&topology) != 0) return Status(Code::kUnsupported, "hwloc does not start");
    auto text = read(f, topology);
    f.destroy(topology);
    return text;
  }

 private:
  static Result<std::string> read(const HwlocFunctions& f, HwlocTopology topology) {
    char* text = nullptr;
    int bytes = 0;
    if (f.set_io_filter(topology, kKeepImportant) != 0 || f.load(topology) != 0 ||
        f.export_xml(topology, &text, &bytes, 0) != 0 || text == nullptr) {
      return Status(Code::kUnsupported, "hwloc does not read this machine");
    }
    std::string result(text);
    f.free_xml(topology, text);
    return result;
  }
};

}  // namespace

std::unique_ptr<HwlocSource> open_hwloc() {
  return std::make_unique<HwlocLibrary>();
}

}  // namespace tutti::topology
