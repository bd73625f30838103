// Congestion control of TCP sockets.
//
// Between two ends on one machine (equal addresses) there is no congestion, and Reno lets all data pass. The
// system's choice may pace: BBR takes a reader's pause for a slow network, then sends two packets every 80 to
// 350 us. Measured: the first 1 MiB after a pause took 2 to 4 ms. A socket that connects under BBR stays
// paced for ever. So every socket starts under Reno; sockets to other machines then get the system's choice.
#pragma once

namespace tutti {

/// Whether both ends of a connected socket have the same IP address. False for sockets of other kinds.
bool loops_back(int socket);

/// Sets Reno. Call before the socket connects or listens.
void begin_unpaced(int socket);

/// Sets the system's congestion control if the peer is on another machine. Call after connect or accept.
/// Allocates nothing.
void choose_congestion_control(int socket);

}  // namespace tutti
