// hwloc's XML, version 2: read and written. lstopo writes such a file, and so does hwloc's library, which
// detection asks for one.
//
// From the file come packages, NUMA nodes, L3 caches, cores, and PCI devices that are GPUs or network cards,
// with the bridges between. A PCI switch is one upper port and several lower ports; here it is one node.
// Links between GPUs come from the matrix NVLinkBandwidth. Memory that belongs to a GPU becomes that GPU's.
#pragma once

#include <string>
#include <string_view>

#include "topology/assembly.h"
#include "topology/xml.h"

namespace tutti::topology {

/// Errors: kInvalidArgument with "line N: ...".
Result<Imported> import_hwloc(const XmlElement& topology, Origin origin = Origin::kFile);

/// The same into an assembly that has only its host. After a failure the assembly is not usable.
Status add_hwloc(const XmlElement& topology, Assembly& assembly);

/// One host of the graph, as hwloc 2 loads it. Networks have no place in this form.
/// Errors: kInvalidArgument if there is no host, or there are several.
Result<std::string> export_hwloc(const Graph& graph);

}  // namespace tutti::topology
