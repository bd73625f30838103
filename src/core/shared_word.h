// A host thread's accesses to a plain word that another thread, process or device may use at the same time.
// The word is no std::atomic, so that kernels can use the struct that holds the word.
#pragma once

#include <atomic>
#include <type_traits>

namespace tutti {

template <class Word>
Word load_shared(const Word& word, std::memory_order order = std::memory_order_seq_cst) {
  // A load writes nothing; std::atomic_ref takes no const object before C++26.
  return std::atomic_ref(const_cast<Word&>(word)).load(order);
}

template <class Word>
void store_shared(Word& word, std::type_identity_t<Word> value,
                  std::memory_order order = std::memory_order_seq_cst) {
  std::atomic_ref(word).store(value, order);
}

}  // namespace tutti
