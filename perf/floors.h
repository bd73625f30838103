// Floors: the times of a device for steps that no operation can avoid. Tables show shares of them.
#pragma once

#include "core/result.h"
#include "perf/site.h"

namespace tutti::perf {

struct Floors {
  double copy_gbs = 0;   ///< copies within the device; counts bytes read and written
  double kernel_us = 0;  ///< an empty kernel, as one of many in a graph
};

/// Measures the floors of a site's device. Nothing else may use the device. Errors: kOutOfMemory,
/// kSystemError.
Result<Floors> measure_floors(Site& site);

}  // namespace tutti::perf
