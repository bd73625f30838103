// Text: files read as characters, windows of them as samples, and a trigram model to be compared with.
#pragma once

#include <filesystem>

#include "trainer/dataset.h"

namespace tutti::trainer {

/// Characters (bytes) that occur, and their numbers.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text);
  size_t count() const { return characters_.size(); }
  int number_of(char character) const { return numbers_[static_cast<unsigned char>(character)]; }
  char character_of(int number) const { return characters_[static_cast<size_t>(number)]; }
  std::vector<int> encode(std::string_view text) const;
  /// Tells vocabularies of the same size apart: a digest of the characters, for a model's description.
  std::string description() const;

 private:
  std::vector<int> numbers_;  ///< of each byte; -1: does not occur
  std::string characters_;
};

struct Text {
  std::string train;
  std::string held_out;
};

/// Reads files, and folders with all text files below them in order of their names. The last tenth of each
/// file is held out. Throws Error that names the path: missing, no text, empty.
Text read_text(const std::vector<std::filesystem::path>& paths);

/// Windows of `context` characters, each of which is to foretell the next one.
class TextDataset : public Dataset {
 public:
  /// A window begins every `stride` characters. Of each, the targets before `scored_from` do not count: they
  /// have been seen with more context in the window before. Throws Error when there is not one window.
  TextDataset(std::vector<int> tokens, size_t context, size_t stride, size_t scored_from);
  size_t sample_count() const override { return (tokens_.size() - context_ - 1) / stride_ + 1; }
  size_t targets_per_sample() const override { return context_; }
  void read(std::span<const uint32_t> samples, Batch* batch) const override;

 private:
  std::vector<int> tokens_;
  size_t context_;
  size_t stride_;
  size_t scored_from_;
};

/// Training windows everywhere, held-out windows that overlap by half.
Data make_text_data(const Text& text, const Vocabulary& vocabulary, size_t context);

/// Nats a character of a trigram model of `train` on those characters of `held_out` that a held-out window of
/// make_text_data scores. Counts of three, two and one characters are interpolated as Witten and Bell do,
/// 1991.
double trigram_loss(const std::vector<int>& train, const std::vector<int>& held_out, size_t vocabulary_count,
                    size_t first_scored);

}  // namespace tutti::trainer
