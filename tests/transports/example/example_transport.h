// The example of docs/adding_a_transport.md: a transport that is as small as it can be and still passes the
// conformance suite. Each channel has a socket of its own, and each message is a header and its bytes.
#pragma once

#include <memory>
#include <vector>

#include "transports/registry.h"
#include "transports/transport.h"

namespace tutti::test {

inline constexpr TransportTraits kExampleTraits{};

Result<std::unique_ptr<Transport>> open_example_transport(const TransportOptions& options);

inline constexpr TransportEntry kExampleTransport{"example", &kExampleTraits, open_example_transport,
                                                  nullptr};

}  // namespace tutti::test
