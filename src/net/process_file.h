// ProcessFile: names an open file of one process, so that another process of the same host and user can open
// it through /proc, without a word with its owner. Between many processes that is ten times as fast as asking
// the file server.
#pragma once

#include <cstdint>

#include "core/file_descriptor.h"

namespace tutti {

struct ProcessFile {
  int32_t fd = -1;      ///< in its process; -1: no file
  uint32_t device = 0;  ///< of the file, with `inode`: tell whether an opened file is the one that was meant
  uint64_t inode = 0;
};

/// Names a file of this process, which stays open while others may open it. No file if the kernel refuses.
ProcessFile name_file(int fd);

/// Opens the file of process `pid`: a pipe for reading, another file for reading and writing. Closed if it is
/// not there or is another one: the process has ended, has another PID namespace, or the kernel does not let
/// this one see its files.
FileDescriptor open_file_of(int64_t pid, const ProcessFile& file);

}  // namespace tutti
