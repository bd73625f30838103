// fork() in a process with blocks. Their pages are shared, so the child reads them into memory of its own,
// while the parent waits in fork().
//
// The handlers are the first ones of the process: so the handlers of all others run before the parent's
// blocks are locked, and after the child has its copy. Between them nothing may allocate: another allocator's
// locks may be held.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "blocks.h"

namespace tutti::preload {
namespace {

constexpr int kPatienceMs = 10'000;

void close_end(int& end) {
  if (end != -1) close(end);
  end = -1;
}

/// Takes the parent's pages from [begin, end), but keeps the addresses.
void let_go(std::byte* begin, std::byte* end) {
  if (begin == end) return;
  if (mmap(begin, static_cast<size_t>(end - begin), PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    end_process("fork: the child cannot let go of its parent's memory");
  }
}

/// Reads [start, end) of the file to `target`, without the parts that have no pages.
void read_pages(int file, off_t start, off_t end, std::byte* target) {
  const off_t first = start;
  while (start < end && (start = lseek(file, start, SEEK_DATA)) >= 0 && start < end) {
    const off_t hole = std::min(lseek(file, start, SEEK_HOLE), end);
    while (start < hole) {
      const ssize_t got = pread(file, target + (start - first), static_cast<size_t>(hole - start), start);
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
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
  mutex_.lock();
  if (state_ != State::kOwn) return;
  if (hold(__builtin_frame_address(0))) {
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
    while (pipe_[kRead] != -1) {
      const int count = poll(&end, 1, kPatienceMs);
      if (count > 0) break;
      if (count == 0) say("fork: the child is still copying; has it been stopped?");
    }
    close_end(pipe_[kRead]);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  const int cancellation = cancellation_;
  mutex_.unlock();
  pthread_setcancelstate(cancellation, nullptr);
}

void Blocks::after_fork_in_child() {
  if (state_ == State::kOwn) {
    copy_for_child();
    close_end(pipe_[kRead]);
    close_end(pipe_[kWrite]);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
  }
  const int cancellation = cancellation_;
  mutex_.unlock();
  pthread_setcancelstate(cancellation, nullptr);
}

void Blocks::copy_for_child() {
  struct stat file {};
  const bool has_file = fstat(heap_->fd(), &file) == 0 && file.st_ino == file_number_;
  // Only the blocks stay: what lies between them is the parent's. Its addresses stay taken, for hold().
  std::byte* end = heap_->base();
  bool has_blocks = false;
  heap_->for_each([&](const SymmetricHeap::Allocation& block) {
    if (spare_.has(block.address)) return;
    has_blocks = true;
    copy_block(block, has_file);
    let_go(end, block.address);
    end = block.address + block.bytes;
  });
  let_go(end, heap_->base() + heap_->bytes());
  if (has_file) close(heap_->fd());
  if (has_blocks) {
    state_ = State::kCopy;
  } else {
    // This process makes a heap of its own when it needs one, by its own settings. The old object stays: to
    // free it takes the next allocator.
    munmap(heap_->base(), heap_->bytes());
    base_.store(nullptr, std::memory_order_relaxed);
    least_bytes_.store(0, std::memory_order_relaxed);
    heap_ = nullptr;
    spare_ = {};
    state_ = State::kNotYet;
  }
}

/// Puts private memory with the same bytes in the block's place.
void Blocks::copy_block(const SymmetricHeap::Allocation& block, bool has_file) const {
  void* const own =
      mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) end_process("fork: no memory for the child's copy");
  if (has_file) {
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
