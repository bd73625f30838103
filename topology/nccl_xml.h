// NCCL's topology files: <system><cpu><pci><gpu|nic>, read and written. NCCL dumps one with
// NCCL_TOPO_DUMP_FILE and reads one from NCCL_TOPO_FILE; RCCL uses the same form.
//
// A cpu element is a NUMA node. Links between GPUs are a count; their speed follows from the GPU's generation
// and is an assumption. Files without gpu elements list PCI devices only, and NCCL adds the rest at run time.
#pragma once

#include <string>
#include <string_view>

#include "topology/assembly.h"
#include "topology/xml.h"

namespace tutti::topology {

/// Errors: kInvalidArgument with "line N: ...".
Result<Imported> import_nccl(const XmlElement& system, Origin origin = Origin::kFile);

/// One host of the graph. Cores, caches and networks have no place in this form.
/// Errors: kInvalidArgument if there is no host, or there are several.
Result<std::string> export_nccl(const Graph& graph);

}  // namespace tutti::topology
