// Floors: what a device takes for what no operation can do without. Tables are shares of them.
#pragma once

#include "core/result.h"
#include "perf/site.h"

namespace tutti::perf {

struct Floors {
  double copy_gbs = 0;   ///< copies within the device, read and written bytes
  double kernel_us = 0;  ///< an empty kernel, one of many in a graph
};

/// Of a site on a device, while nobody else uses it. Errors: kOutOfMemory, kSystemError.
Result<Floors> measure_floors(Site& site);

}  // namespace tutti::perf
