// TCP sockets on one machine: how they are told, and what controls congestion on them.
//
// Between two ends on one machine (the same address) there is no congestion to control. Reno lets all pass;
// the system's choice may be one that paces, as BBR does: it takes a pause of the reader for a slow network
// and then sends two packets every 80 to 350 us (measured: the first 1 MiB after a pause took 2 to 4 ms).
// A socket that has been connected under BBR is paced for ever, whatever it is given later: so all begin
// under Reno, and those that turn out to lead elsewhere get the system's choice.
#pragma once

namespace tutti {

/// Whether both ends of a connected socket have the same IP address; false for sockets of other kinds.
bool loops_back(int socket);

/// Before a socket connects or listens.
void begin_unpaced(int socket);

/// Of a socket that has been connected or accepted: between machines the system's congestion control.
void choose_congestion_control(int socket);

}  // namespace tutti
