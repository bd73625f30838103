// fork() in a process with blocks. Their pages are shared, so the child reads them into memory of its own,
// while the parent waits in fork().
//
// These handlers are registered before all others. So the prepare handlers of other libraries run before
// mutex_ is taken, and their child handlers run after the copy. From before_fork to the end of the copy
// nothing may allocate: fork() may hold the next allocator's locks.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "blocks.h"

namespace tutti::preload {
namespace {

constexpr int kReportAfterMs = 10'000;
constexpr int kMostReports = 6;

void close_end(int& end) {
  if (end != -1) close(end);
  end = -1;
}

/// Unmaps the parent's pages in [begin, end), and keeps the addresses reserved.
void unmap_pages(std::byte* begin, std::byte* end) {
  if (begin == end) return;
  if (mmap(begin, static_cast<size_t>(end - begin), PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    end_process("fork: the child cannot unmap its parent's memory");
  }
}

/// Reads [start, end) of the file to `target`, without the parts that have no pages.
void read_pages(int file, off_t start, off_t end, std::byte* target) {
  const off_t first = start;
  while (start < end) {
    const off_t data = lseek(file, start, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;  // no pages up to the end of the file
    // Where the system does not tell, all of it.
    const off_t hole = data < 0 ? -1 : lseek(file, data, SEEK_HOLE);
    if (data >= 0) start = std::min(data, end);
    const off_t stop = hole < 0 ? end : std::min(hole, end);
    while (start < stop) {
      const ssize_t got = pread(file, target + (start - first), static_cast<size_t>(stop - start), start);
      if (got > 0) start += got;
      if (got == 0 || (got < 0 && errno != EINTR))
        end_process("fork: the child cannot read its parent's memory");
    }
  }
}

}  // namespace

void Blocks::set_fork_handlers() {
  const auto result = pthread_atfork([] { blocks.before_fork(); }, [] { blocks.after_fork_in_parent(); },
                                     [] { blocks.after_fork_in_child(); });
  has_fork_handlers_.store(result == 0, std::memory_order_release);
}

void Blocks::before_fork() {
  int cancellation = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
  mutex_.lock();
  cancellation_ = cancellation;
  if (state_ != State::kOwn) return;
  if (holds(__builtin_frame_address(0))) {
    end_process(
        "fork() on a stack that malloc gave: the child would share it; TUTTI_MALLOC_BYTES above its size");
  }
  // A handler of a signal must not see blocks that are half there.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &signals_);
  if (pipe2(pipe_.data(), O_CLOEXEC) != 0) {
    say("fork: no descriptors for a pipe, so the child may see what its parent writes meanwhile");
  }
}

void Blocks::after_fork_in_parent() {
  if (state_ == State::kOwn) {
    close_end(pipe_[kWrite]);
    // Hangs up when the child has its copy or is dead, and when there is no child.
    pollfd end{.fd = pipe_[kRead], .events = 0, .revents = 0};
    for (int reports = 0; pipe_[kRead] != -1 && reports < kMostReports; ++reports) {
      if (poll(&end, 1, kReportAfterMs) != 0) break;
      say("fork: the child is still copying; has it been stopped?");
    }
  }
  end_fork(state_ == State::kOwn);
}

void Blocks::after_fork_in_child() {
  if (state_ != State::kCopy) least_bytes_.store(0, std::memory_order_relaxed);  // its settings may be others
  const bool has_own = state_ == State::kOwn;
  if (has_own) copy_for_child();
  end_fork(has_own);
}

/// Gives back what before_fork has taken. `has_own`: the process had blocks of its own then.
void Blocks::end_fork(bool has_own) {
  if (has_own) {
    close_end(pipe_[kRead]);
    close_end(pipe_[kWrite]);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  const int cancellation = cancellation_;
  mutex_.unlock();
  pthread_setcancelstate(cancellation, nullptr);
}

void Blocks::copy_for_child() {
  const bool reads_file = has_file();
  // Only the blocks stay: what lies between them is the parent's. Its addresses stay taken, for holds().
  std::byte* end = heap_->base();
  bool has_blocks = false;
  heap_->for_each([&](const SymmetricHeap::Allocation& block) {
    if (spare_.has(block.address)) return;
    has_blocks = true;
    copy_block(block, reads_file);
    unmap_pages(end, block.address);
    end = block.address + block.bytes;
  });
  unmap_pages(end, heap_->base() + heap_->bytes());
  if (reads_file) close(heap_->fd());
  if (has_blocks) {
    state_ = State::kCopy;
  } else {
    // This process makes a heap of its own when it needs one. The old object stays: to free it takes the next
    // allocator.
    munmap(heap_->base(), heap_->bytes());
    base_.store(nullptr, std::memory_order_relaxed);
    heap_ = nullptr;
    spare_ = {};
    state_ = State::kNotYet;
  }
}

/// Puts private memory with the same bytes in the block's place.
void Blocks::copy_block(const SymmetricHeap::Allocation& block, bool reads_file) const {
  void* const own =
      mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) end_process("fork: no memory for the child's copy");
  if (reads_file) {
    const off_t start = block.address - heap_->base();
    read_pages(heap_->fd(), start, start + static_cast<off_t>(block.bytes), static_cast<std::byte*>(own));
  } else {
    std::memcpy(own, block.address, block.bytes);
  }
  if (mremap(own, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, block.address) == MAP_FAILED) {
    end_process("fork: the child cannot take its copy");
  }
}

}  // namespace tutti::preload
