// Text: files read as characters, windows of characters as samples, and a trigram model for comparison.
#pragma once

#include <filesystem>

#include "trainer/dataset.h"

namespace tutti::trainer {

/// The characters (bytes) that occur, and their numbers.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text);
  size_t count() const { return characters_.size(); }
  int number_of(char character) const { return numbers_[static_cast<unsigned char>(character)]; }
  char character_of(int number) const { return characters_[static_cast<size_t>(number)]; }
  std::vector<int> encode(std::string_view text) const;
  /// A digest of the characters, for a model's description. Distinguishes vocabularies of equal size.
  std::string description() const;

 private:
  std::vector<int> numbers_;  ///< for each byte; -1: does not occur
  std::string characters_;
};

struct Text {
  std::string train;
  std::string held_out;
};

/// Reads files, and folders with all text files below them, in order of their names. The last tenth of each
/// file is held out. Throws Error with the path: missing, no text, empty.
Text read_text(const std::vector<std::filesystem::path>& paths);

/// Windows of `context` characters. Each character is to predict the next one.
class TextDataset : public Dataset {
 public:
  /// A window begins every `stride` characters. In each window, targets before `scored_from` do not count:
  /// the window before has scored them with more context. Throws Error if the text is shorter than one
  /// window.
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

/// Training windows start at every character. Held-out windows overlap by half.
Data make_text_data(const Text& text, const Vocabulary& vocabulary, size_t context);

/// The loss of a trigram model of `train`, in nats a character, on the characters of `held_out` that a
/// held-out window of make_text_data scores. Interpolates counts of three, two and one characters after
/// Witten and Bell, 1991.
double trigram_loss(const std::vector<int>& train, const std::vector<int>& held_out, size_t vocabulary_count,
                    size_t first_scored);

}  // namespace tutti::trainer
