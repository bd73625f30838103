// A machine or a cluster in one line, as people describe it:
//
//   64 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, fat tree 2:1
//
// Parts are separated by commas or line ends; '#' begins a comment. The parts, in any order:
//   [N hosts x] N gpus            also without GPUs: [N hosts x] N cores
//   N packages                    processors of a host (1)
//   N cores                       of a host (1)
//   nvswitch SPEED                each GPU's links together, to one switch
//   nvlink SPEED | xgmi SPEED     the same sum, spread evenly over links to every other GPU of the host
//   pcie SPEED                    of each GPU and NIC (15.8 GB/s)
//   nic [N x] SPEED               network cards of a host
//   fat tree N:M                  hosts below leaf switches, N bytes down for M bytes up; 1:1 blocks nothing
//   leaf N hosts                  hosts below one leaf switch (32)
//   rails                         the NICs of one number have leaf switches of their own
//   one switch                    all hosts at one switch; this is assumed if nothing is said
//   latency TIME                  of one hop of the network
// Numbers that the text gives have the origin "file"; all others are assumed.
#pragma once

#include <string_view>

#include "topology/graph.h"

namespace tutti::topology {

/// Safe for any input. Errors: kInvalidArgument with "line N: ...".
Result<Graph> parse_description(std::string_view text);

}  // namespace tutti::topology
