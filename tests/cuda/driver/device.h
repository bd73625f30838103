// Device: one GPU of the fake driver: a thread that runs the heads of its streams, kernels among them,
// interleaved.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/work.h"
#include "tests/simt/scheduler.h"

namespace fake_cuda {

/// A process's turn to run kernels, where processes take turns: the lock of a file that they share.
class ProcessTurn {
 public:
  ~ProcessTurn();
  /// Whether it is this process's turn, which then lasts until `end`.
  bool take();
  void end();

 private:
  int file_ = -1;
  bool is_held_ = false;
  uint64_t ended_ns_ = 0;  ///< when this process's last turn ended
};

class Device {
 public:
  Device(CUdevice ordinal, int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CUdevice ordinal() const { return ordinal_; }
  /// Its number in the machine, the same in every process.
  int number() const { return number_; }
  Context& context() { return context_; }
  std::string name() const;
  CUuuid uuid() const;
  std::string pci_bus_id() const;
  int attribute(CUdevice_attribute which) const;
  /// Whether this device may reach memory of another one, by its number.
  bool reaches(int other) const;

  Pool* pool = nullptr;  ///< its own; null: nobody has asked for it

  // With Machine::lock held.
  void add_stream(Stream* stream) { streams_.push_back(stream); }
  void remove_stream(Stream* stream);
  /// Puts work into a stream of this device.
  void enqueue(Stream& stream, std::shared_ptr<Work> work);
  /// Waits until the device has nothing left to do.
  void wait_idle(Guard& guard);
  const std::vector<Stream*>& streams() const { return streams_; }
  /// Ends the thread; what it has not done stays undone.
  void stop(Guard& guard);

 private:
  void run();
  bool look_at_streams(Guard& guard);
  bool is_held_up(const Work& work) const;
  bool snapshot_of(Work& work, Guard& guard);
  bool start(const Node& node, Work& work, size_t index, Guard& guard);
  void let_in_kernels();

  const CUdevice ordinal_;
  const int number_;
  Context context_;
  std::vector<Stream*> streams_;
  uint64_t work_count_ = 0;
  std::condition_variable wake_;
  bool stopping_ = false;
  uint64_t grids_running_ = 0;
  ProcessTurn turn_;
  std::unique_ptr<tutti::simt::Scheduler> scheduler_;  ///< of the thread
  std::thread thread_;
};

uint64_t now_ns();

}  // namespace fake_cuda
