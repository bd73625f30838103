// Settings of TCP sockets: congestion control, keepalive.
//
// Between two ends on one machine (equal addresses) there is no congestion, and Reno lets all data pass. The
// system's choice may pace: BBR takes a reader's pause for a slow network, then sends two packets every 80 to
// 350 us. Measured: the first 1 MiB after a pause took 2 to 4 ms. A socket that connects under BBR stays
// paced for ever. So every socket starts under Reno; sockets to other machines then get the system's choice.
#pragma once

#include <cstdint>

namespace tutti {

/// Whether both ends of a connected socket have the same IP address. False for sockets of other kinds.
bool loops_back(int socket);

/// Sets Reno. Call before the socket connects or listens.
void begin_unpaced(int socket);

/// Sets the system's congestion control if the peer is on another machine. Call after connect or accept.
/// Allocates nothing.
void choose_congestion_control(int socket);

/// setsockopt() with a number. False: errno says why.
bool set_option(int socket, int level, int name, int value);

/// The kernel finds out in about this time that the peer's host has vanished, though the socket is idle; 0:
/// never. Other sockets than TCP's stay as they are. False: the kernel refuses; errno says why.
bool set_keepalive(int socket, uint64_t keepalive_ms);

}  // namespace tutti
